import { words } from "./greeting.js";

console.log(words("Node.js"));
