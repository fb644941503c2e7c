/**
 * Generates the OpenAPI document from the declarations of the routes: their schemas, credentials and limits. Nothing
 * about a single route is written here by hand, so a new route is included automatically.
 */
import { ERRORS, type ErrorCode } from "../../errors.ts";
import { Problem } from "../../schemas/common.ts";
import { Components, type Schema } from "./components.ts";
import {
  GENERAL_HEADERS,
  headerComponents,
  headersOf,
  headersOfRefusals,
} from "./answer-headers.ts";
import { refusalsOf, type Credential, type DeclaredRoute } from "./refusals.ts";

/** Using an agent within its rules: the only permission of a connected program. */
export const OAUTH_SCOPE = "agent";

interface Service {
  version: string;
  publicUrl: string;
  /** The name of the session cookie of this service. */
  cookieName: string;
}

export function openApiDocument(service: Service, routes: readonly DeclaredRoute[]): object {
  const components = new Components();
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = route.url.replaceAll(/:([A-Za-z]+)/g, "{$1}");
    paths[path] = {
      ...paths[path],
      [route.method.toLowerCase()]: operation(route, components),
    };
  }
  const usedTags = new Set(routes.flatMap(({ schema }) => schema.tags ?? []));
  return {
    openapi: "3.1.0",
    info: {
      title: "Purser",
      version: service.version,
      summary: "A USDC wallet with limits for AI agents, and an x402 payment facilitator.",
      description: ABOUT,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: service.publicUrl }],
    tags: Object.entries(TAGS)
      .filter(([name]) => usedTags.has(name))
      .map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: components.schemas(),
      responses: REFUSALS,
      headers: headerComponents(),
      parameters: { IdempotencyKey: IDEMPOTENCY_KEY },
      securitySchemes: {
        agentKey: {
          type: "http",
          scheme: "bearer",
          description: "An agent's API key (`purser_...`)",
        },
        connection: {
          type: "oauth2",
          description: "A program that the owner connected; only for the MCP endpoint",
          flows: {
            authorizationCode: {
              authorizationUrl: `${service.publicUrl}/oauth/authorize`,
              tokenUrl: `${service.publicUrl}/oauth/token`,
              refreshUrl: `${service.publicUrl}/oauth/token`,
              scopes: { [OAUTH_SCOPE]: "Use the agent's wallet within its limits" },
            },
          },
        },
        facilitatorKey: {
          type: "http",
          scheme: "bearer",
          description:
            "A paid API's key: a merchant's own (`purser_mk_...`) or one from the operator; needed only if third parties may not settle",
        },
        ownerSession: {
          type: "apiKey",
          in: "cookie",
          name: service.cookieName,
          description:
            "The owner's session cookie (SIWE sign-in). Methods other than GET also need the `Origin` of this service",
        },
      },
    },
    "x-error-codes": Object.entries(ERRORS).map(([code, definition]) => ({ code, ...definition })),
  };
}

const ABOUT =
  "Amounts are decimal strings of USDC, and atomic units inside x402 objects. Every error is an " +
  "`application/problem+json` with a `code` of the catalogue (`GET /api/errors`). Lists are newest first: pass " +
  `\`nextCursor\` as \`cursor\` until it is null. Headers of every response: ${GENERAL_HEADERS}.`;

/** A route's tag must be one of these; a test checks it. */
const TAGS: Record<string, string> = {
  agents: "Agent calls with an API key: pay, fetch, read the wallet",
  "owners: session": "Sign-in with a wallet or a passkey, and the sessions it opened",
  "owners: agents": "Create, limit, pause and archive agents",
  "owners: allowlist": "The payees that an agent may pay",
  "owners: keys": "API keys of an agent",
  "owners: connections": "Programs connected to an agent by OAuth",
  "owners: approvals": "Payments that agents ask the owner to allow",
  "owners: payments": "Payments, fetches and refusals",
  "owners: withdrawals": "Withdrawals, with an order that the owner's wallet signs",
  "owners: budgets": "Budgets: limits that several agents share",
  "owners: stop": "Stop everything with one request, and resume with the owner's signature",
  "owners: denied payees": "Addresses and sites that none of the owner's agents pays",
  "owners: recovery": "The owner's recovery wallet",
  "owners: passkeys": "The owner's passkeys, and where an owner without a wallet withdraws to",
  "owners: teams":
    "Owners that are several people: their members, and orders that wait for signatures",
  "owners: notifications": "Notifications of owners and merchants, and webhooks",
  "owners: audit": "The audit log of an owner's account, a hash chain that anyone can check",
  facilitator: "x402: verify and settle payments for paid APIs, and find paid resources",
  merchants: "Settlements to the signed-in wallet, refunds, and facilitator keys",
  marketplace: "Paid endpoints that agents can find",
  cells: "What the cells of one service send to each other",
  demo: "A paid endpoint to try",
  operators: "For the people who run the service",
  meta: "The service itself",
  local: "Helpers for local development; not available in production",
};

const SECURITY: Record<Credential, Record<string, string[]>[]> = {
  public: [],
  agent: [{ agentKey: [] }],
  owner: [{ ownerSession: [] }],
  operator: [{ ownerSession: [] }],
  facilitator: [{}, { facilitatorKey: [] }],
  cell: [],
};

const WHO: Record<Credential, string> = {
  public: "No credentials needed.",
  agent: "Called by an agent, with its API key.",
  owner: "Called by an owner who is signed in.",
  operator: "Called by an operator (`OPERATORS`) who is signed in; for others it does not exist.",
  facilitator: "Called by a paid API; with its key if the operator requires one.",
  cell: "Called by another cell of this service, which signs the request.",
};

function operation(route: DeclaredRoute, components: Components): object {
  const { config, schema, method } = route;
  const auth = config.auth ?? "public";
  const parameters = [
    ...parametersIn("path", schema.params, components),
    ...parametersIn("query", schema.querystring, components),
    ...parametersIn("header", schema.headers, components),
    ...(config.idempotencyKey ? [{ $ref: "#/components/parameters/IdempotencyKey" }] : []),
  ];
  const sentences = [
    schema.description,
    WHO[auth],
    auth === "owner" && method !== "GET" && !("second" in config)
      ? "Not available to the owner's recovery wallet."
      : undefined,
    config.idempotencyKey
      ? "Send an `Idempotency-Key`: a repeat with the same key and body gets the first response and pays nothing."
      : undefined,
  ];
  return {
    operationId: schema.operationId,
    summary: schema.summary,
    description: sentences.filter((sentence) => sentence !== undefined).join(" "),
    tags: schema.tags,
    security: config.oauth ? [...SECURITY[auth], { connection: [OAUTH_SCOPE] }] : SECURITY[auth],
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(schema.body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { "application/json": components.useWithExample(schema.body as Schema) },
          },
        }),
    responses: answers(route, components),
    "x-codes": Object.fromEntries(refusalsOf(route)),
  };
}

function parametersIn(place: "path" | "query" | "header", schema: unknown, components: Components) {
  const { properties = {}, required = [] } = (schema ?? {}) as {
    properties?: Record<string, Schema>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...used } = components.use(property);
    return {
      name,
      in: place,
      required: place === "path" || required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema: used,
    };
  });
}

/**
 * The responses of the route: those that it declares by status, and its refusals, which all have one shape. They are
 * declared once for all routes, because generators write code for each status of each route. `x-codes` has the codes.
 */
function answers(route: DeclaredRoute, components: Components): object {
  const declared = (route.schema.response ?? {}) as Record<string, Schema>;
  const refusals = refusalsOf(route);
  const { produces } = route.schema;
  // An answer that more members of a team must sign is no failure, so no range of failures has it.
  const waiting = [...refusals.keys()].filter((status) => status < 300);
  const statuses = [...Object.keys(declared).map(Number), ...waiting, ...(produces ? [200] : [])];
  const result: Record<string, object> = {};
  for (const status of new Set(statuses.sort((left, right) => left - right))) {
    const schema = declared[status];
    const codes = refusals.get(status) ?? [];
    const isProblem = codes.length > 0 && (schema === undefined || isProblemSchema(schema));
    const content: Record<string, object> = {};
    if (!isProblem)
      for (const type of (status === 200 && produces) || ["application/json"])
        if (type !== "application/json") content[type] = { schema: { type: "string" } };
        else if (schema && schema["type"] !== "null")
          content[type] = components.useWithExample(schema);
    if (codes.length > 0)
      content["application/problem+json"] = components.useWithExample(
        isProblem && schema ? schema : PROBLEM,
      );
    result[status] = {
      description: described(schema, codes) ?? route.schema.summary ?? "",
      ...headersOf(route, status),
      ...(Object.keys(content).length > 0 ? { content } : {}),
    };
  }
  // Always named in the document: it is the schema of the shared refusals.
  components.useWithExample(PROBLEM);
  for (const [range, { name }] of Object.entries(RANGES))
    result[range] = { $ref: `#/components/responses/${name}` };
  return result;
}

const PROBLEM = Problem as unknown as Schema;

/** The refusals of every route, by range of statuses. */
const RANGES = {
  "4XX": { name: "RefusedRequest", description: "Refused; `x-codes` of the operation lists why" },
  "5XX": { name: "FailedRequest", description: "Failed; `x-codes` of the operation lists why" },
};

const REFUSALS = Object.fromEntries(
  Object.entries(RANGES).map(([range, { name, description }]) => [
    name,
    {
      description,
      headers: headersOfRefusals(range),
      content: { "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } } },
    },
  ]),
);

const isProblemSchema = ({ properties }: Schema): boolean =>
  properties !== undefined &&
  "requestId" in (properties as object) &&
  "code" in (properties as object);

function described(schema: Schema | undefined, codes: readonly ErrorCode[]): string | undefined {
  const description = schema?.["description"];
  if (codes.length === 0) return typeof description === "string" ? description : undefined;
  return codes.map((code) => `\`${code}\`: ${ERRORS[code].title}`).join(". ");
}

const IDEMPOTENCY_KEY = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description:
    "Identifies this call so that a repeat is not a second payment: 1 to 255 printable characters, stored for at least a day",
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x20-\\x7e]+$" },
  example: "0d9f7a52-6d4b-4b0c-9a37-5c1f1f0a2f11",
};
