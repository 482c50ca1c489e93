const words = (name: string): string => `hello from ${name}`;

console.log(words("TypeScript"));
