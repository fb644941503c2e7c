/**
 * Inputs of tools, as JSON Schema that strict function calling accepts: every object closed, every member required (a
 * member that may be left out is nullable instead), and no keyword beyond these. Limits and forms are checked by the API,
 * whose refusals explain more than a schema.
 */

interface Value {
  type: string | readonly string[];
  description?: string;
  enum?: readonly (string | null)[];
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

const nullable = (type: string, description?: string): Value => ({
  type: [type, "null"],
  ...(description === undefined ? {} : { description }),
});

export const text = (description?: string): Value => nullable("string", description);
export const integer = (description?: string): Value => nullable("integer", description);
export const texts = (description?: string): Value => ({
  ...nullable("array", description),
  items: { type: "string" },
});
export const oneOf = (words: readonly string[], description?: string): Value => ({
  ...nullable("string", description),
  enum: [...words, null],
});

/** The same, but null is not allowed. */
export const needed = ({ type, enum: words, ...rest }: Value): Value => ({
  type: [type].flat()[0] ?? "string",
  ...rest,
  ...(words && { enum: words.filter((word) => word !== null) }),
});

export const input = (properties: Record<string, Value>): ToolInput => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

export const part = (properties: Record<string, Value>, description: string): Value => ({
  ...input(properties),
  ...nullable("object", description),
});
