return { words = function(name) return "hello from " .. name end }
