// Goal: the tools' schemas are ones that strict function calling accepts, whichever client gives them to a model.
import t from "tap";
import {
  AGENT_TOOLS,
  anthropicTools,
  openAiTools,
} from "../../server/plugins/agent-tools/tools.ts";

interface Schema {
  [keyword: string]: unknown;
  type?: string;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
}

/** Of https://platform.openai.com/docs/guides/structured-outputs#supported-schemas the part that all models take. */
const KEYWORDS = new Set([
  "type",
  "anyOf",
  "description",
  "enum",
  "items",
  "properties",
  "required",
  "additionalProperties",
]);
const TYPES = new Set(["string", "integer", "number", "boolean", "object", "array", "null"]);
const DEEPEST = 5;

function faults(schema: Schema, path: string, depth = 1): string[] {
  const { type, anyOf, items, properties = {}, required } = schema;
  const found = Object.keys(schema)
    .filter((keyword) => !KEYWORDS.has(keyword))
    .map((keyword) => `${path}: ${keyword} is not supported`);
  if (depth > DEEPEST) found.push(`${path}: is too deep`);
  if (anyOf) return [...found, ...anyOf.flatMap((one) => faults(one, path, depth))];
  if (type === undefined || !TYPES.has(type)) found.push(`${path}: has no known type`);
  if (type === "array")
    found.push(
      ...(items ? faults(items, `${path}[]`, depth + 1) : [`${path}: an array without items`]),
    );
  if (type !== "object") return found;
  const names = Object.keys(properties);
  if (schema["additionalProperties"] !== false) found.push(`${path}: is not closed`);
  if (JSON.stringify(required) !== JSON.stringify(names))
    found.push(`${path}: not every member is required`);
  return [
    ...found,
    ...names.flatMap((name) => faults(properties[name] ?? {}, `${path}.${name}`, depth + 1)),
  ];
}

t.test("every input is closed, with all members required and known keywords only", async (t) => {
  for (const { name, input } of AGENT_TOOLS) {
    const schema = JSON.parse(JSON.stringify(input)) as Schema;
    t.same(faults(schema, name), []);
    t.equal(schema.type, "object", "the root is an object");
  }
  t.same(
    faults({ type: "object", properties: { a: { type: "string", maxLength: 3 } } }, "x"),
    ["x: is not closed", "x: not every member is required", "x.a: maxLength is not supported"],
    "the check finds what is wrong",
  );
});

t.test("the same schemas for every kind of client", async (t) => {
  for (const [index, { name, input, description }] of AGENT_TOOLS.entries()) {
    const { function: openAi } = openAiTools()[index] ?? {};
    t.same(openAi, { name, description, strict: true, parameters: input });
    t.same(anthropicTools()[index], { name, description, input_schema: input });
    t.match(name, /^[a-zA-Z0-9_-]{1,64}$/);
  }
});

t.test("arguments become a call of the API", async (t) => {
  const tool = (name: string) => AGENT_TOOLS.find((one) => one.name === name);
  const payload = (args: Record<string, unknown>) => tool("x402_fetch")?.toCall(args).payload;
  const url = "https://api.example.com/x";
  t.same(payload({ url, headers: ["Accept: text/csv", "X-A: b:c"] }), {
    url,
    headers: { Accept: "text/csv", "X-A": "b:c" },
  });
  t.same(
    payload({ url, method: "POST", body: '{"n":1.0}' }),
    { url, method: "POST", body: '{"n":1.0}' },
    "JSON text keeps its bytes, and the call has no header that it did not have in earlier versions",
  );
  t.same(payload({ url, body: "plain" }), { url, body: "plain" });
  t.same(payload({ url, body: { n: 1 }, headers: { a: "b" } }), {
    url,
    body: { n: 1 },
    headers: { a: "b" },
  });
  t.same(payload({ url, mcp: { tool: "a", arguments: '{"city":"Wien"}' } }), {
    url,
    mcp: { tool: "a", arguments: { city: "Wien" } },
  });
  t.same(payload({ url, mcp: { tool: "a", arguments: null } }), { url, mcp: { tool: "a" } });
  for (const wrong of [{ mcp: { tool: "a", arguments: "[1]" } }, { headers: ["none"] }])
    t.throws(() => payload({ url, ...wrong }), /JSON object|Name: value/);
  const refused = { url, headers: ["A: b"], maxAmount: null };
  t.same(
    tool("request_approval")?.toCall({
      tool: "x402_fetch",
      arguments: JSON.stringify(refused),
      reason: "why",
    }),
    {
      method: "POST",
      url: "/api/agents/x402-fetch",
      payload: { url, headers: { A: "b" }, requestApproval: true, reason: "why" },
    },
    "the same call as the refused one",
  );
});
