/** The bodies of the HTTP API, as its OpenAPI file has them. */

import type { components } from "./schema.ts";

export type Schemas = components["schemas"];

/** Of a sandbox; the last two are there once asked for by `connect` or `refresh`. */
export type SandboxBody = Schemas["Sandbox"] &
  Partial<Pick<Schemas["SandboxDetail"], "effective" | "usage">>;

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : Name;

/** The fields of a body in this language's words; what is null there is left out here. */
export type InOurWords<Body> = {
  [Key in keyof Body as Camel<Key & string>]?: NonNullable<Body[Key]>;
};
