console.log("hello from Deno" satisfies string);
