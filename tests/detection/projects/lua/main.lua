print(require("greeting").words("Lua " .. _VERSION))
