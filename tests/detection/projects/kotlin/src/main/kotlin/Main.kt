fun main() = println("hello from Kotlin")
