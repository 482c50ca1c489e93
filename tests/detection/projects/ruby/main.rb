# frozen_string_literal: true

Greeting = Struct.new(:name) do
  def words = "hello from #{name}"
end

puts Greeting.new("Ruby").words
