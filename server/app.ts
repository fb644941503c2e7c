/** Builds the whole service from a resolved configuration. `main.ts` listens; tests inject requests. */
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import Fastify, { LogController, type FastifyInstance } from "fastify";
import type { Config } from "./config.ts";
import { newId } from "./core/ids.ts";
import tracing from "./infra/tracing.ts";
import { metrics, loggerOptions, type LogDestination } from "./infra/telemetry.ts";
import db from "./infra/db/index.ts";
import kms from "./infra/kms.ts";
import chains from "./infra/chain/index.ts";
import chainReads from "./infra/chain/reads.ts";
import readiness from "./infra/readiness.ts";
import functions from "./infra/functions.ts";
import outbound from "./infra/outbound/outbound.ts";
import jobs from "./infra/jobs.ts";
import retention from "./infra/retention.ts";
import vitals from "./infra/vitals.ts";
import { lazySchemas, type SchemaCompilers } from "./infra/lazy-schemas.ts";
import http from "./plugins/http/index.ts";
import auth from "./plugins/auth/index.ts";
import audit from "./plugins/audit/index.ts";
import screening from "./plugins/screening/index.ts";
import cells from "./plugins/cells/index.ts";
import owners from "./plugins/owners/index.ts";
import orders from "./plugins/orders/index.ts";
import channels from "./plugins/channels/index.ts";
import custody from "./plugins/custody/index.ts";
import guardrails from "./plugins/guardrails/index.ts";
import agents from "./plugins/agents/index.ts";
import recovery from "./plugins/recovery/index.ts";
import passkeys from "./plugins/passkeys/index.ts";
import budgets from "./plugins/budgets/index.ts";
import teams from "./plugins/teams/index.ts";
import tasks from "./plugins/tasks/index.ts";
import stop from "./plugins/stop/index.ts";
import deniedPayees from "./plugins/denied-payees/index.ts";
import approvals from "./plugins/approvals/index.ts";
import settlement from "./plugins/settlement/index.ts";
import reconciliation from "./plugins/reconciliation/index.ts";
import allowances from "./plugins/allowances/index.ts";
import payments from "./plugins/payments/index.ts";
import spending from "./plugins/spending/index.ts";
import withdrawals from "./plugins/withdrawals/index.ts";
import activity from "./plugins/activity/index.ts";
import notifications from "./plugins/notifications/index.ts";
import facilitator from "./plugins/facilitator/index.ts";
import firstSteps from "./plugins/first-steps/index.ts";
import fees from "./plugins/fees/index.ts";
import merchants from "./plugins/merchants/index.ts";
import listings from "./plugins/listings/index.ts";
import x402Client from "./plugins/x402-client/index.ts";
import marketplace from "./plugins/marketplace/index.ts";
import discovery from "./plugins/discovery/index.ts";
import validate from "./plugins/validate/index.ts";
import paywall from "./plugins/paywall/index.ts";
import sandbox from "./plugins/sandbox/index.ts";
import demo from "./plugins/demo/index.ts";
import operators from "./plugins/operators/index.ts";
import oauth from "./plugins/oauth/index.ts";
import agentTools from "./plugins/agent-tools/index.ts";
import meta from "./plugins/meta/index.ts";
import docs from "./plugins/docs/index.ts";
import faucet from "./plugins/faucet/index.ts";
import { sendProblem, toApiError } from "./plugins/http/errors.ts";
import { answerBrokenRequest } from "./plugins/http/sockets.ts";
import { fixedHeadersOf } from "./plugins/http/fixed-headers.ts";

declare module "fastify" {
  interface FastifyInstance {
    config: Config;
  }
}

/** The parts that all modules need. */
const INFRASTRUCTURE = [
  metrics,
  tracing,
  kms,
  db,
  chains,
  chainReads,
  readiness,
  functions,
  outbound,
  jobs,
  retention,
  vitals,
];

/** Order matters: a module imports only those before it. */
const MODULES = [
  http,
  auth,
  audit,
  screening,
  cells,
  owners,
  orders,
  custody,
  guardrails,
  agents,
  recovery,
  passkeys,
  budgets,
  teams,
  tasks,
  stop,
  deniedPayees,
  approvals,
  settlement,
  reconciliation,
  allowances,
  payments,
  spending,
  withdrawals,
  activity,
  notifications,
  firstSteps,
  facilitator,
  channels,
  fees,
  merchants,
  listings,
  x402Client,
  marketplace,
  discovery,
  validate,
  paywall,
  sandbox,
  demo,
  oauth,
  agentTools,
  operators,
  meta,
  docs,
  faucet,
];

const BODY_LIMIT_BYTES = 256 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_TIMEOUT_MS = 10_000;
/** Above the usual 60 s of a load balancer, so that it never writes to a connection that we have just closed. */
const KEEP_ALIVE_MS = 65_000;
const MAX_REQUESTS_PER_SOCKET = 100_000;
const PLUGIN_TIMEOUT_MS = 60_000;
/** Ajv's own optimization doubles the time to compile a schema, and validates no faster: V8 does the same. */
const UNOPTIMIZED = { optimize: false };

interface BuildOptions {
  /** Where log lines are written instead of stdout (for tests). */
  logDestination?: LogDestination;
  /** Adds hooks before everything else: the tests check every response against its documented schema. */
  observe?: (app: FastifyInstance) => void;
  /** How routes' schemas are compiled; by default each at its first use. */
  schemaCompilers?: SchemaCompilers;
}

export async function buildApp(
  config: Config,
  options: BuildOptions = {},
): Promise<FastifyInstance> {
  const app = Fastify({
    logger: loggerOptions(config, options.logDestination),
    bodyLimit: BODY_LIMIT_BYTES,
    // A request that does not arrive in time loses its connection: plugins/http/sockets.ts.
    requestTimeout: config.timings.requestTimeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxRequestsPerSocket: MAX_REQUESTS_PER_SOCKET,
    http: {
      headersTimeout: Math.min(config.timings.requestTimeoutMs, HEADERS_TIMEOUT_MS),
      connectionsCheckingInterval: Math.min(1_000, config.timings.requestTimeoutMs / 4),
      maxHeaderSize: MAX_HEADER_BYTES,
      // A missing host header is refused with a response of ours: plugins/http/own-host.ts.
      requireHostHeader: false,
    },
    clientErrorHandler: answerBrokenRequest,
    // Loading everything on a busy machine, or an RPC that hangs, may take longer than the default of 10 s.
    pluginTimeout: PLUGIN_TIMEOUT_MS,
    trustProxy: config.trustProxy,
    // One line per request, when it is answered: plugins/http/index.ts.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => newId("req"),
    requestIdHeader: false,
    // API calls never redirect: a redirect would lose the Authorization header.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 200 },
    forceCloseConnections: "idle",
    // Requests that arrive while we stop are answered and their connections closed; the infrastructure is closed last.
    return503OnClosing: false,
    // A URL that cannot be decoded reaches no route and no hook; it gets the usual error response.
    frameworkErrors: (error, request, reply) => {
      sendProblem(request, reply.headers(fixedHeadersOf(config).open), toApiError(error));
    },
    schemaController: { compilersFactory: options.schemaCompilers ?? lazySchemas },
    ajv: {
      customOptions: {
        removeAdditional: false,
        coerceTypes: false,
        useDefaults: true,
        allErrors: true,
        code: UNOPTIMIZED,
      },
    },
    serializerOpts: { ajv: { code: UNOPTIMIZED } },
  }).withTypeProvider<TypeBoxTypeProvider>();
  // JSON only; Fastify would accept plain text as well.
  app.removeContentTypeParser("text/plain");
  app.decorate("config", config);
  options.observe?.(app);
  try {
    for (const part of INFRASTRUCTURE) await app.register(part);
    for (const module of MODULES) await app.register(module);
    await app.ready();
  } catch (error) {
    // Pools and timers opened before the failure are closed before the start ends.
    await app.close().catch(() => undefined);
    throw error;
  }
  return app;
}
