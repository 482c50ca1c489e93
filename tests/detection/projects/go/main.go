package main

func words(name string) string { return "hello from " + name }

func main() { println(words("Go")) }
