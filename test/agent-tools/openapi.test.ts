// Goal: the OpenAPI document works with generators and linters, and describes every response of every route.
import { createConfig, lintFromString } from "@redocly/openapi-core";
import t from "tap";
import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import { ERRORS } from "../../server/errors.ts";
import { refusalsOf } from "../../server/plugins/http/refusals.ts";
import { describePattern } from "../../server/schemas/patterns.ts";
import { testApp } from "../helpers/app.ts";

interface Schema {
  [keyword: string]: unknown;
  $ref?: string;
  examples?: unknown[];
  properties?: Record<string, Schema>;
}
interface Answer {
  $ref?: string;
  description: string;
  headers: Record<string, unknown>;
  content?: Record<string, { schema: Schema; example?: unknown }>;
}
interface Operation {
  operationId: string;
  summary: string;
  description: string;
  tags: string[];
  security: Record<string, string[]>[];
  parameters?: { $ref?: string; name?: string; in?: string }[];
  requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> };
  responses: Record<string, Answer>;
  "x-codes": Record<string, string[]>;
}
interface OpenApi {
  paths: Record<string, Record<string, Operation>>;
  tags: { name: string; description: string }[];
  components: { schemas: Record<string, Schema>; responses: Record<string, Answer> };
}

// With a public URL: a linter reports localhost as a mistake.
const { app } = await testApp(t, {
  env: { PUBLIC_URL: "https://purser.test", OPERATORS: `0x${"a".repeat(40)}` },
  configure: (config) =>
    void (config.local = {
      demoOwnerPrivateKey: `0x${"1".repeat(64)}`,
      faucetPrivateKey: `0x${"2".repeat(64)}`,
    } as typeof config.local),
});
const text = (await app.inject({ url: "/openapi.json", headers: { host: "purser.test" } })).body;
const document = JSON.parse(text) as OpenApi;
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    name: `${method.toUpperCase()} ${path}`,
    operation,
  })),
);
/** A status of its own comes before the range that it is in. */
function answerTo({ responses }: Operation, status: number): Answer | undefined {
  const answer = responses[status] ?? responses[`${Math.floor(status / 100)}XX`];
  return answer && answerOf(answer);
}
const answerOf = (answer: Answer): Answer =>
  answer.$ref === undefined
    ? answer
    : (document.components.responses[answer.$ref.split("/").at(-1) ?? ""] as Answer);

t.test("every route has its authentication, responses and refusals", async (t) => {
  t.equal(operations.length, app.documentedRoutes.length);
  const known = new Set(document.tags.map(({ name }) => name));
  for (const { method, url, schema, config } of app.documentedRoutes) {
    const path = url.replaceAll(/:([A-Za-z]+)/g, "{$1}");
    const operation = document.paths[path]?.[method.toLowerCase()];
    const name = `${method} ${url}`;
    if (!operation) {
      t.fail(`${name} is not in the document`);
      continue;
    }
    t.match(operation.operationId, /^[a-z]+([A-Z0-9][a-z0-9]*)+$/, `${name}: operationId`);
    t.ok(operation.summary, `${name}: summary`);
    t.ok(operation.description, `${name}: description`);
    t.ok(
      operation.tags.length === 1 && operation.tags.every((tag) => known.has(tag)),
      `${name}: a tag of the table in plugins/http/document.ts`,
    );
    t.equal(operation.security.length === 0, config.auth === "public", `${name}: security`);
    const good = Object.entries(operation.responses).filter(([status]) => Number(status) < 300);
    t.ok(
      good.some(([, { content }]) => content !== undefined),
      `${name}: a response schema, or \`produces\``,
    );
    const refusals = refusalsOf({ method, url, schema, config });
    t.same(operation["x-codes"], Object.fromEntries(refusals), `${name}: codes by status`);
    for (const status of refusals.keys()) {
      const answer = answerTo(operation, status);
      t.ok(answer?.content?.["application/problem+json"], `${name} ${status}: problem+json`);
    }
  }
});

t.test("every pattern of a request has words for its refusal", async (t) => {
  const patterns = new Set<string>();
  const collect = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [key, child] of Object.entries(value))
      if (key === "pattern" && typeof child === "string") patterns.add(child);
      else collect(child);
  };
  for (const { schema } of app.documentedRoutes)
    collect([schema?.["body"], schema?.["querystring"], schema?.["params"]]);
  t.ok(patterns.size > 10);
  const unknown = describePattern("none of the patterns");
  t.same(
    [...patterns].filter((pattern) => describePattern(pattern) === unknown),
    [],
  );
});

t.test("operation ids never change: generated clients use them as names", async (t) => {
  const ids = operations.map(({ operation }) => operation.operationId);
  t.equal(new Set(ids).size, ids.length, "unique");
  t.same([...ids].sort(), FROZEN);
});

t.test("which routes accept an Idempotency-Key, and their response headers", async (t) => {
  const takes = operations
    .filter(({ operation }) =>
      operation.parameters?.some((it) => it.$ref?.endsWith("/IdempotencyKey")),
    )
    .map(({ operation }) => operation.operationId);
  t.same(takes.sort(), [
    "agentFetch",
    "agentSpend",
    "executeWithdrawal",
    "settlePayment",
    "tryFetch",
  ]);
  const spend = document.paths["/api/agents/spend"]?.["post"];
  t.ok(spend?.responses[200]?.headers["Idempotent-Replayed"]);
  t.ok(spend && answerTo(spend, 429)?.headers["Retry-After"]);
});

t.test("schemas are named and typed, and every error code has a problem response", async (t) => {
  const { schemas } = document.components;
  for (const [path, schema] of walk(document)) {
    const { patternProperties, nullable, $id, const: constant } = schema;
    t.ok(patternProperties === undefined && nullable === undefined && $id === undefined, path);
    if (constant === null) t.fail(`${path}: null is a type`);
  }
  // Only the named schema for any JSON value is untyped.
  const untyped = walk(document).filter(
    ([, schema]) =>
      !["type", "$ref", "anyOf", "enum", "const", "allOf"].some((keyword) => keyword in schema),
  );
  t.same(
    untyped.map(([path]) => path),
    ["components.schemas.JsonValue"],
  );
  for (const name of ["Address", "Amount", "TxHash", "NetworkId", "Id", "Digits", "Hex32"])
    t.ok(schemas[name]?.["pattern"], `${name} has a pattern`);
  t.equal(schemas["Timestamp"]?.["format"], "date-time");
  const problems = Object.values(document.components.responses);
  t.equal(problems.length, 2, "shared by all routes, so that generated clients stay small");
  for (const { content } of problems)
    t.match(content, { "application/problem+json": { schema: { $ref: /\/Problem$/ } } });
  const codes = new Set(
    operations.flatMap(({ operation }) => Object.values(operation["x-codes"]).flat()),
  );
  // Returned outside of routes, or inside of protocol responses.
  const elsewhere = ["method_not_allowed", "duplicate_settlement"];
  t.same(
    Object.keys(ERRORS).filter((code) => !codes.has(code)),
    elsewhere,
  );
});

t.test("no two names become one in a generated client", async (t) => {
  // As generators write them: without signs, and without regard to capitals.
  const spelled = (name: string) => name.replaceAll(/[^A-Za-z0-9]/g, "").toLowerCase();
  const owners = new Map<string, Set<string>>();
  const add = (name: string, owner: string) => {
    const known = owners.get(spelled(name)) ?? new Set();
    owners.set(spelled(name), known.add(owner));
  };
  // Types inside of a type, and the values of an enum, are named after it.
  const within = (name: string, schema: Schema, owner: string): void => {
    if (schema.$ref !== undefined) return;
    const values = (schema["enum"] ?? []) as unknown[];
    if (schema.properties || values.length > 0) add(name, owner);
    for (const value of values.filter((each) => spelled(String(each)) !== ""))
      add(`${name} ${String(value)}`, `${owner} = ${String(value)}`);
    for (const [member, child] of Object.entries(schema.properties ?? {}))
      within(`${name} ${member}`, child, `${owner}.${member}`);
    const { items, anyOf = [] } = schema as { items?: Schema; anyOf?: Schema[] };
    if (items) within(`${name} Item`, items, `${owner}[]`);
    const [variant, ...others] = anyOf.filter(({ type }) => type !== "null");
    if (variant && others.length === 0) within(name, variant, owner);
    else for (const [nth, one] of anyOf.entries()) within(`${name} ${nth}`, one, `${owner}|${nth}`);
  };
  // No type is made of a security scheme.
  for (const [kind, named] of Object.entries(document.components))
    if (kind !== "securitySchemes")
      for (const name of Object.keys(named)) add(name, `${kind}.${name}`);
  for (const [name, schema] of Object.entries(document.components.schemas))
    within(name, schema, `schemas.${name}`);
  // A client has types for each operation too.
  for (const { operationId } of operations.map(({ operation }) => operation))
    for (const suffix of ["Params", "Response", "Res", "Req", "JSONRequestBody"])
      add(`${operationId} ${suffix}`, `${operationId}()`);
  const shared = [...owners.values()].filter((names) => names.size > 1);
  t.same(
    shared.map((names) => [...names]),
    [],
  );
});

t.test("every example matches its schema: bodies, responses and fields", async (t) => {
  let count = 0;
  const holds = (schema: Schema, example: unknown, path: string) => {
    count += 1;
    const resolved = resolve(schema) as TSchema;
    const errors = Value.Errors(resolved, example).map((it) => `${it.instancePath} ${it.message}`);
    t.same(errors, [], path);
  };
  for (const [path, schema] of walk(document))
    for (const example of schema.examples ?? []) holds(schema, example, path);
  for (const { name, operation } of operations) {
    const bodies = [
      ["body", operation.requestBody?.content["application/json"]] as const,
      ...Object.entries(operation.responses).map(
        ([status, answer]) => [status, answerOf(answer).content?.["application/json"]] as const,
      ),
    ];
    for (const [where, media] of bodies) {
      if (!media) continue;
      const isAny = media.schema.$ref?.endsWith("/JsonValue");
      if (media.example !== undefined) holds(media.schema, media.example, `${name} ${where}`);
      else t.ok(isAny || examplesOf(media.schema), `${name} ${where} has an example`);
    }
  }
  t.ok(count > 150, `${count} examples`);
});

t.test("the recommended rules of a linter pass", async (t) => {
  const config = await createConfig({ extends: ["recommended"] });
  const lint = async (source: string) => {
    const problems = await lintFromString({ source, absoluteRef: "/openapi.json", config });
    return problems.map(({ ruleId, message }) => `${ruleId}: ${message.split("\n")[0]}`);
  };
  // A literal segment where other paths have an agent's id; servers match literals first, and no id looks like it.
  const known = /^no-ambiguous-paths: .*`\/api\/agents\/approvals\/\{id\}`/;
  t.same(
    (await lint(text)).filter((problem) => !known.test(problem)),
    [],
  );
  const broken = await lint(
    text.replace('"operationId":"agentSpend"', '"operationId":"agentFetch"'),
  );
  t.match(broken.join(), /operation-operationId-unique/, "the linter can fail");
});

function examplesOf(schema: Schema): boolean {
  return (resolve(schema).examples?.length ?? 0) > 0;
}

/** The schema with its references replaced by their targets. */
function resolve(schema: Schema): Schema {
  const name = schema.$ref?.split("/").at(-1);
  const target = name === undefined ? schema : document.components.schemas[name];
  return Object.fromEntries(
    Object.entries(target ?? {}).map(([key, value]) => [
      key,
      key === "examples" || key === "enum" ? value : resolveAll(value),
    ]),
  );
}

const resolveAll = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(resolveAll)
    : typeof value === "object" && value !== null
      ? resolve(value as Schema)
      : value;

/** Every schema of the document, with its path. */
function walk(document: OpenApi): [string, Schema][] {
  const found: [string, Schema][] = [];
  const add = (path: string, schema: Schema) => {
    found.push([path, schema]);
    for (const [name, child] of Object.entries(schema.properties ?? {}))
      add(`${path}.${name}`, child);
    for (const key of ["items", "additionalProperties"])
      if (typeof schema[key] === "object") add(`${path}.${key}`, schema[key] as Schema);
    for (const key of ["anyOf", "allOf", "oneOf"])
      for (const [index, child] of ((schema[key] ?? []) as Schema[]).entries())
        add(`${path}.${key}.${index}`, child);
  };
  for (const [name, schema] of Object.entries(document.components.schemas))
    add(`components.schemas.${name}`, schema);
  for (const { name, operation } of operations) {
    for (const [type, media] of Object.entries(operation.requestBody?.content ?? {}))
      add(`${name} ${type}`, media.schema);
    for (const [status, answer] of Object.entries(operation.responses))
      for (const [type, media] of Object.entries(answer.content ?? {}))
        add(`${name} ${status} ${type}`, media.schema);
  }
  return found;
}

/** Add a line for a new operation; never change or remove one. */
const FROZEN = [
  "actFor",
  "addPushDevice",
  "agentFetch",
  "agentSpend",
  "allowConnection",
  "allowPayee",
  "allowPayeeAgain",
  "approvePayment",
  "archiveAgent",
  "archiveBudget",
  "askConsent",
  "callMcp",
  "changeBudget",
  "changeMembers",
  "changeWebhook",
  "checkDeployment",
  "closeChannel",
  "closeChannels",
  "closeDifference",
  "closeTask",
  "confirmEmail",
  "createAgent",
  "createAgentKey",
  "createBudget",
  "createListing",
  "createMerchantKey",
  "createSignInNonce",
  "createTeam",
  "createWebhook",
  "declinePayment",
  "deleteListing",
  "deleteWebhook",
  "denyConnection",
  "denyPayee",
  "disallowPayee",
  "endSession",
  "executeWithdrawal",
  "exportAudit",
  "exportBeancount",
  "exportMerchantFees",
  "exportMerchantSettlements",
  "exportMovements",
  "getAgent",
  "getAgentPayment",
  "getAgentSelf",
  "getApproval",
  "getBlocks",
  "getBudget",
  "getChainStats",
  "getConfiguration",
  "getEmail",
  "getFacilitator",
  "getFacilitatorStats",
  "getFirstSteps",
  "getHealth",
  "getInfo",
  "getListing",
  "getLlmsText",
  "getLocalInfo",
  "getMerchant",
  "getMerchantFees",
  "getMerchantSettlement",
  "getOperatorOverview",
  "getOverview",
  "getOwnerBalance",
  "getPasskeyOptions",
  "getPasskeySignInOptions",
  "getPayment",
  "getPaymentAnswer",
  "getPayout",
  "getReadiness",
  "getReceipt",
  "getRecovery",
  "getSession",
  "getSettlement",
  "getSignUpOptions",
  "getSkill",
  "getSpending",
  "getSupportedKinds",
  "getTask",
  "getTeam",
  "getWaitingOrder",
  "hideFirstSteps",
  "listAgentAudit",
  "listAgentFetches",
  "listAgentKeys",
  "listAgentPayments",
  "listAgentTasks",
  "listAgents",
  "listAnthropicTools",
  "listApprovals",
  "listAudit",
  "listBudgetAgents",
  "listBudgets",
  "listChannels",
  "listConnections",
  "listDeniedPayees",
  "listDifferences",
  "listDiscoveryResources",
  "listErrors",
  "listFailingDeliveries",
  "listFetches",
  "listFilters",
  "listListings",
  "listLowAccounts",
  "listMerchantFees",
  "listMerchantKeys",
  "listMerchantProducts",
  "listMerchantSettlements",
  "listNotifications",
  "listOpenAiTools",
  "listOperatorActions",
  "listPaidMerchants",
  "listPasskeys",
  "listPayments",
  "listPushDevices",
  "listSessions",
  "listSuggestedListings",
  "listTasks",
  "listWaitingOrders",
  "listWebhookDeliveries",
  "listWebhooks",
  "lookUpSite",
  "lookUpSiteForNewAgent",
  "makeReceipt",
  "moveOwner",
  "namePayout",
  "nameSecondWallet",
  "offerPasskey",
  "openTask",
  "payMerchantFees",
  "prepareWithdrawal",
  "probeListing",
  "readChainAgain",
  "readNotifications",
  "refundSettlement",
  "removeEmail",
  "removeFilter",
  "removePushDevice",
  "replaceAllowlist",
  "requestFaucet",
  "resendWebhookDelivery",
  "resumeEverything",
  "revokeAgentKey",
  "revokeConnection",
  "revokeMerchantKey",
  "rotateAgentKey",
  "rotateWebhookSecret",
  "saveFilter",
  "searchDiscoveryResources",
  "searchPayments",
  "setEmail",
  "settlePayment",
  "signIn",
  "signInWithPasskey",
  "signOut",
  "signPasskeys",
  "signUpWithPasskey",
  "signWaitingOrder",
  "stopEverything",
  "streamEvents",
  "testPushDevice",
  "testWebhook",
  "tryFetch",
  "unsubscribeEmail",
  "updateAgent",
  "updateListing",
  "updatePushDevice",
  "validatePaidApi",
  "verifyPayment",
  "waitForApproval",
  "withdrawWaitingOrder",
];
