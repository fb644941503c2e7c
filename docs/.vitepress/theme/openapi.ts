// What the API reference shows of an OpenAPI document.
export interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  description?: string;
  title?: string;
  examples?: unknown[];
}

interface Content {
  content?: Record<string, { schema?: Schema; example?: unknown }>;
}
interface Parameter {
  $ref?: string;
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: Schema;
}
interface Answer extends Content {
  $ref?: string;
  description?: string;
}
interface RawOperation {
  operationId: string;
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: Parameter[];
  requestBody?: Content;
  responses?: Record<string, Answer>;
  /** The error codes by status. */
  "x-codes"?: Record<string, string[]>;
}
export interface OpenApi {
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, RawOperation>>;
}

export interface Field {
  name: string;
  type: string;
  isRequired: boolean;
  description: string;
  fields: Field[];
}
export interface Operation {
  id: string;
  method: string;
  path: string;
  summary: string;
  description: string;
  parameters: Field[];
  body: Field[];
  /** A body that the route takes, as JSON; empty where it takes none. */
  example: string;
  answers: { status: string; fields: Field[]; type: string }[];
  refusals: { status: string; codes: string[] }[];
}
export interface Tag {
  name: string;
  description: string;
  operations: Operation[];
}

/** Deeper than this the name of the type has to do. */
const MOST_DEPTH = 4;

export function readTags(document: OpenApi): Tag[] {
  const find = <T extends { $ref?: string }>(thing: T): T => {
    if (thing.$ref === undefined) return thing;
    let found: unknown = document;
    for (const part of thing.$ref.slice(2).split("/"))
      found = (found as Record<string, unknown>)[part.replaceAll("~1", "/")];
    return found as T;
  };
  const variantsOf = (schema: Schema): Schema[] => (schema.anyOf ?? schema.oneOf ?? []).map(find);
  const typeOf = (raw: Schema): string => {
    const schema = find(raw);
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
    const variants = variantsOf(schema);
    if (variants.length > 0) return [...new Set(variants.map(typeOf))].join(" | ");
    if (schema.type === "array") return `${typeOf(schema.items ?? {})}[]`;
    return [schema.type ?? "any"].flat().join(" | ");
  };
  const fieldsOf = (raw: Schema, depth = 0): Field[] => {
    const schema = find(raw);
    if (schema.type === "array") return fieldsOf(schema.items ?? {}, depth);
    const objects = [schema, ...variantsOf(schema)].filter(({ properties }) => properties);
    const [object] = objects;
    if (object === undefined || depth > MOST_DEPTH) return [];
    return Object.entries(object.properties ?? {}).map(([name, member]) => ({
      name,
      type: typeOf(member),
      isRequired: object.required?.includes(name) ?? false,
      description: find(member).description ?? "",
      fields: fieldsOf(member, depth + 1),
    }));
  };
  /** What the schema itself gives as an example; else the required fields, each with its own. */
  const exampleOf = (raw: Schema, name = "", depth = 0): unknown => {
    const schema = find(raw);
    const given = raw.examples?.[0] ?? schema.examples?.[0] ?? schema.const ?? schema.enum?.[0];
    if (given !== undefined) return given;
    const [variant] = variantsOf(schema);
    if (variant) return exampleOf(variant, name, depth);
    const [type] = [schema.type ?? "object"].flat();
    if (type === "array")
      return depth > MOST_DEPTH ? [] : [exampleOf(schema.items ?? {}, name, depth + 1)];
    if (type === "object")
      return Object.fromEntries(
        (depth > MOST_DEPTH ? [] : (schema.required ?? [])).map((field) => [
          field,
          exampleOf(schema.properties?.[field] ?? {}, field, depth + 1),
        ]),
      );
    return { string: `<${name}>`, integer: 1, number: 1, boolean: true }[type ?? ""] ?? null;
  };
  const exampleIn = ({ content = {} }: Content): string => {
    const [first] = Object.values(content);
    if (first === undefined) return "";
    const example = JSON.stringify(first.example ?? exampleOf(first.schema ?? {}), null, 2);
    // Objects of other standards have no fields here: a body with empty ones would be refused.
    return example.includes(": {}") ? "" : example;
  };
  const schemaIn = ({ content = {} }: Content): Schema => Object.values(content)[0]?.schema ?? {};
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, raw]) => {
      const refusals = raw["x-codes"] ?? {};
      const all = Object.entries(raw.responses ?? {}).map(([status, answer]) => ({
        status,
        answer: find(answer),
      }));
      const operation: Operation = {
        id: raw.operationId,
        method: method.toUpperCase(),
        path,
        summary: raw.summary ?? "",
        description: raw.description ?? "",
        parameters: (raw.parameters ?? []).map(find).map((one) => ({
          name: one.name,
          type: `${one.in}, ${typeOf(one.schema ?? {})}`,
          isRequired: one.required ?? false,
          description: one.description ?? "",
          fields: [],
        })),
        body: fieldsOf(schemaIn(raw.requestBody ?? {})),
        example: exampleIn(raw.requestBody ?? {}),
        answers: all
          .filter(({ status }) => /^\d+$/.test(status) && refusals[status] === undefined)
          .map(({ status, answer }) => ({
            status,
            type: Object.keys(answer.content ?? {})[0] ?? "",
            fields: fieldsOf(schemaIn(answer)),
          })),
        refusals: Object.entries(refusals).map(([status, codes]) => ({ status, codes })),
      };
      return { tags: raw.tags ?? [], operation };
    }),
  );
  return document.tags.map(({ name, description }) => ({
    name,
    description,
    operations: operations
      .filter(({ tags }) => tags.includes(name))
      .map(({ operation }) => operation),
  }));
}
