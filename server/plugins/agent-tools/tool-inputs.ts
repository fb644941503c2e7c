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

export interface ToolInput extends Value {
  type: "object";
  properties: Record<string, Value>;
  required: readonly string[];
  additionalProperties: false;
}

/** `anyOf`, because not every provider takes a list of types. */
const orNull = (value: Value, description?: string): Value => ({
  anyOf: [value, { type: "null" }],
  ...(description === undefined ? {} : { description }),
});

export const text = (description?: string): Value => orNull({ type: "string" }, description);
export const integer = (description?: string): Value => orNull({ type: "integer" }, description);
export const texts = (description?: string): Value =>
  orNull({ type: "array", items: { type: "string" } }, description);
export const oneOf = (words: readonly string[], description?: string): Value =>
  orNull({ type: "string", enum: words }, description);

/** The same, but null is not allowed. */
export const needed = ({ anyOf: [value] = [], description }: Value): Value => ({
  ...value,
  ...(description === undefined ? {} : { description }),
});

export const input = (properties: Record<string, Value>): ToolInput => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

export const part = (properties: Record<string, Value>, description: string): Value =>
  orNull(input(properties), description);
