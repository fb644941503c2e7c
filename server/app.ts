/** Builds the whole service from a resolved configuration. `main.ts` listens; tests inject. */
import { fileURLToPath } from "node:url";
import autoload from "@fastify/autoload";
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import Fastify, { LogController, type FastifyInstance } from "fastify";
import type { Config } from "./config.ts";
import { newId } from "./domain/ids.ts";
import { sendProblem, toApiError } from "./plugins/errors.ts";
import { loggerOptions, type LogDestination } from "./logger.ts";

declare module "fastify" {
  interface FastifyInstance {
    config: Config;
  }
}

/** Sources run as they are (through tsx), also where the loader is registered in ways autoload cannot see. */
process.env.FASTIFY_AUTOLOAD_TYPESCRIPT ??= "1";

const BODY_LIMIT_BYTES = 256 * 1024;
const PLUGIN_TIMEOUT_MS = 60_000;
const folder = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

export interface BuildOptions {
  /** Where log lines go instead of stdout (tests read them). */
  logDestination?: LogDestination;
  /** Hooks before everything else: the tests hold every answer to its documented schema. */
  observe?: (app: FastifyInstance) => void;
}

export async function buildApp(
  config: Config,
  options: BuildOptions = {},
): Promise<FastifyInstance> {
  const app = Fastify({
    logger: loggerOptions(config.logLevel, options.logDestination),
    bodyLimit: BODY_LIMIT_BYTES,
    // Loading everything on a busy machine, or asking an RPC that hangs, may take longer than the 10 s default.
    pluginTimeout: PLUGIN_TIMEOUT_MS,
    trustProxy: config.trustProxy,
    // One line per request, when it is answered: plugins/request-log.ts.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => newId("req"),
    requestIdHeader: false,
    // API calls never redirect: a redirect would lose the Authorization header.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 200 },
    forceCloseConnections: "idle",
    // A URL that cannot be decoded reaches no route and no hook: it is answered like any other refusal.
    frameworkErrors: (error, request, reply) => {
      sendProblem(request, reply, toApiError(error));
    },
    ajv: {
      customOptions: {
        removeAdditional: false,
        coerceTypes: false,
        useDefaults: true,
        allErrors: true,
      },
    },
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.decorate("config", config);
  // JSON in, JSON out; Fastify would take plain text as well.
  app.removeContentTypeParser("text/plain");
  options.observe?.(app);
  try {
    await app.register(autoload, {
      dir: folder("plugins"),
      encapsulate: false,
      maxDepth: 1,
      matchFilter: isModule,
    });
    await app.register(autoload, {
      dir: folder("routes"),
      dirNameRoutePrefix: false,
      matchFilter: isModule,
    });
    await app.ready();
  } catch (error) {
    // Whatever was opened before the failure (pools, timers) is closed before the boot stops.
    await app.close().catch(() => undefined);
    throw error;
  }
  return app;
}

/** `name.ts` in plugins/ and routes/ is loaded; `name.helper.ts` beside it is not. */
function isModule(path: string): boolean {
  return path.endsWith(".ts") && !path.endsWith(".helper.ts") && !path.endsWith(".d.ts");
}
