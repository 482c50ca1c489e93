package = "greeting"
version = "1.0-1"
source = { url = "git+https://example.org/greeting.git" }
dependencies = { "lua >= 5.1" }
build = { type = "builtin", modules = { greeting = "greeting.lua" } }
