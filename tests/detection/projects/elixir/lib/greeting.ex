defmodule Greeting do
  def words(name), do: "hello from #{name}"
end
