export const words = (name) => `hello from ${name}`;
