/**
 * Converts schemas for the OpenAPI document. A schema with a name is defined once and referenced everywhere else;
 * TypeBox's forms for TypeScript are rewritten in the forms that client generators know; and each schema gets an
 * example.
 */
import { SCHEMES } from "../../schemes/index.ts";
import * as wire from "../../schemas/all.ts";
import { DOCUMENTED_AS } from "../../schemas/common.ts";

export type Schema = Record<string, unknown>;

/** Annotations describe the use of a schema: two schemas that differ only in these are one type. */
const ANNOTATIONS = ["description", "default", "examples"] as const;

export class Components {
  /** By key: every named schema, with the schema that documents it. */
  readonly #named = new Map<number, { name: string; schema: Schema }>();
  readonly #keys = new WeakMap<object, number>();
  readonly #spellings = new Map<string, number>();
  readonly #used = new Map<string, Schema>();

  constructor(exported: Record<string, unknown> = wire) {
    for (const [name, schema] of Object.entries(exported)) {
      if (!isSchema(schema)) continue;
      const shown = DOCUMENTED_AS.get(schema) as Schema | undefined;
      this.#name(schema, { name, schema: shown ?? schema });
    }
  }

  /** The schema for the document: a reference if it has a name. */
  use(schema: Schema): Schema {
    const own = this.#named.get(this.#key(schema));
    if (!own) return this.#inline(schema);
    // The schema that documents it may have a name itself.
    const shown = this.#named.get(this.#key(own.schema));
    const named = shown ? { ...shown, schema: own.schema } : own;
    const { description, default: preset } = schema;
    const overrides = {
      ...(description === undefined || description === named.schema["description"]
        ? {}
        : { description }),
      ...(preset === undefined ? {} : { default: preset }),
    };
    if (!isWorthAName(named.schema)) return { ...this.#inline(named.schema), ...overrides };
    if (!this.#used.has(named.name)) {
      this.#used.set(named.name, {});
      this.#used.set(named.name, this.#inline(named.schema));
    }
    return { $ref: `${PREFIX}${named.name}`, ...overrides };
  }

  /** The same for a whole body: a named schema gets an example. */
  useWithExample(schema: Schema): { schema: Schema; example?: unknown } {
    const used = this.use(schema);
    const component = this.#resolve(used);
    if (!component) return { schema: used, example: this.#example(used, "") };
    // A schema for any value has no example of its own, so the example of its use is taken.
    if (component["type"] === undefined) {
      const [example] = (schema["examples"] ?? []) as unknown[];
      return { schema: used, ...(example === undefined ? {} : { example }) };
    }
    component["examples"] ??= [this.#example(component, "")];
    return { schema: used };
  }

  /** The schemas used so far, by name. */
  schemas(): Record<string, Schema> {
    return Object.fromEntries([...this.#used].sort(byName));
  }

  #name(schema: Schema, named: { name: string; schema: Schema }): void {
    const key = this.#key(schema);
    const before = this.#named.get(key);
    // Two exports of one shape are one type, with the shorter of the names.
    if (!before || named.name.length < before.name.length) this.#named.set(key, named);
  }

  #inline(schema: Schema): Schema {
    const { title: _title, ...rest } = plain(schema);
    return mapChildren(rest, (child) => this.use(child));
  }

  /** Equal for schemas that describe the same values. */
  #key(schema: Schema): number {
    const known = this.#keys.get(schema);
    if (known !== undefined) return known;
    const spelled = mapChildren(plain(schema), (child) => ({ is: this.#key(child) }));
    for (const name of ANNOTATIONS) delete spelled[name];
    const spelling = JSON.stringify(sorted(spelled));
    const key = this.#spellings.get(spelling) ?? this.#spellings.size;
    this.#spellings.set(spelling, key);
    this.#keys.set(schema, key);
    return key;
  }

  #resolve({ $ref }: Schema): Schema | undefined {
    return typeof $ref === "string" ? this.#used.get($ref.slice(PREFIX.length)) : undefined;
  }

  /** An example made of the examples of its members; `name` is the member's name. */
  #example(schema: Schema, name: string): unknown {
    const target = this.#resolve(schema);
    if (target) return this.#example(target, name);
    const [first] = (schema["examples"] ?? schema["enum"] ?? []) as unknown[];
    if (first !== undefined) return first;
    if (schema["const"] !== undefined) return schema["const"];
    if (schema["default"] !== undefined) return schema["default"];
    const { anyOf, items, properties, required } = schema as ObjectSchema;
    if (anyOf) return this.#example(anyOf[0] ?? {}, name);
    if (items) return [this.#example(items, name)];
    if (properties) {
      const members = Object.entries(properties).filter(
        ([member, { examples }]) => required?.includes(member) || examples !== undefined,
      );
      return Object.fromEntries(members.map(([key, member]) => [key, this.#example(member, key)]));
    }
    return scalar(schema, name);
  }
}

const byName = (
  [left]: readonly [string, ...unknown[]],
  [right]: readonly [string, ...unknown[]],
) => (left < right ? -1 : 1);

interface ObjectSchema {
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
}

const PREFIX = "#/components/schemas/";

/** TypeBox schemas have a kind; lists of members, strings and functions do not. */
const isSchema = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && ("~kind" in value || "~unsafe" in value);

const isObject = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A string or number without constraints needs no type of its own. */
const isWorthAName = (schema: Schema): boolean =>
  !SCALARS.has(String(schema["type"])) || ["pattern", "format", "enum"].some((it) => it in schema);
const SCALARS = new Set(["string", "integer", "number", "boolean"]);

const sorted = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sorted)
    : isObject(value)
      ? Object.fromEntries(
          Object.entries(value)
            .sort(([left], [right]) => (left < right ? -1 : 1))
            .map(([name, member]) => [name, sorted(member)]),
        )
      : value;

/**
 * Converts one level: literals of a union become an `enum`, a record uses `additionalProperties`, and an `enum` gets
 * its type.
 */
function plain(schema: Schema): Schema {
  const { patternProperties, anyOf, ...rest } = schema;
  const result: Schema = { ...rest };
  if (isObject(patternProperties)) {
    const [values = {}] = Object.values(patternProperties) as Schema[];
    result["additionalProperties"] = Object.keys(values).length === 0 ? true : values;
  }
  if (Array.isArray(anyOf)) {
    const literals = (anyOf as Schema[]).map((member) => member["const"]);
    if (literals.every((literal) => literal !== undefined)) result["enum"] = literals;
    else result["anyOf"] = anyOf;
  }
  const values = result["enum"] as unknown[] | undefined;
  if (values && result["type"] === undefined) result["type"] = typeof values[0];
  return result;
}

function mapChildren(schema: Schema, map: (child: Schema) => Schema): Schema {
  const result: Schema = { ...schema };
  for (const name of ["anyOf", "oneOf", "allOf"])
    if (Array.isArray(schema[name])) result[name] = (schema[name] as Schema[]).map(map);
  for (const name of ["items", "additionalProperties"])
    if (isObject(schema[name])) result[name] = map(schema[name]);
  if (isObject(schema["properties"]))
    result["properties"] = Object.fromEntries(
      Object.entries(schema["properties"]).map(([name, child]) => [name, map(child as Schema)]),
    );
  return result;
}

function scalar(schema: Schema, name: string): unknown {
  const { type, minimum, format } = schema as { type?: string; minimum?: number; format?: string };
  if (type === "integer" || type === "number") return Math.max(minimum ?? 1, 1);
  if (type === "boolean") return true;
  if (type === "null") return null;
  if (type === "string") return format === "uri-reference" ? "/" : (TEXTS[name] ?? "text");
  return {};
}

/** Examples of text members, by their name. */
const TEXTS: Record<string, string> = {
  agentName: "Research agent",
  apiKey: "purser_3f9aq7...",
  category: "data",
  chain: "Arc Testnet",
  code: "daily_limit_exceeded",
  contentType: "application/json",
  cursor: "eyJhdCI6IjIwMjYifQ",
  description: "Live block statistics",
  detail: "within the limit",
  host: "api.example.com",
  ip: "203.0.113.7",
  label: "Weather data",
  memo: "invoice 17",
  message: "must be string",
  method: "GET",
  mimeType: "application/json",
  name: "Research agent",
  nextCursor: "eyJhdCI6IjIwMjYifQ",
  origin: "https://api.example.com",
  path: "/data",
  publicUrl: "https://purser.example.com",
  readableSite: "https://api.example.com",
  reason: "The report needs today's numbers",
  resource: "https://api.example.com/data",
  scheme: SCHEMES[0].name,
  serviceName: "Example data",
  site: "https://api.example.com",
  source: "https://api.example.com/data",
  url: "https://api.example.com/data",
  userAgent: "Mozilla/5.0",
  version: "1",
};
