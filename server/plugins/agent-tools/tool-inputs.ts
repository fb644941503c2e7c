/**
 * Inputs of tools, as JSON Schema that strict function calling accepts: every object closed, every member required (a
 * member that may be left out is nullable instead), and no keyword beyond these. Limits and forms are checked by the API,
 * whose refusals explain more than a schema.
 */

type Type = "string" | "integer" | "array" | "object";

interface Value {
  type?: Type | "null";
  anyOf?: readonly Value[];
  description?: string;
  enum?: readonly string[];
  items?: Value;
  properties?: Record<string, Value>;
  required?: readonly string[];
  additionalProperties?: false;
}

/** An alias, because an interface is no record. */
export type ToolInput = {
  type: "object";
  properties: Record<string, Value>;
  required: readonly string[];
  additionalProperties: false;
};

const described = (value: Value, description: string | undefined): Value =>
  description === undefined ? value : { ...value, description };

export const text = (description?: string): Value => described({ type: "string" }, description);
export const integer = (description?: string): Value => described({ type: "integer" }, description);
export const texts = (description?: string): Value =>
  described({ type: "array", items: { type: "string" } }, description);
export const oneOf = (words: readonly string[], description?: string): Value =>
  described({ type: "string", enum: words }, description);

/** Or null. `anyOf`, because not every provider takes a list of types. */
export const optional = ({ description, ...value }: Value): Value =>
  described({ anyOf: [value, { type: "null" }] }, description);

export const input = (properties: Record<string, Value>): ToolInput => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

export const part = (properties: Record<string, Value>, description: string): Value =>
  described(input(properties), description);
