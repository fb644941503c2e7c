/**
 * `npm run custody`: the separate process that has the master keys and signs for agents' wallets (docs/decisions/0030).
 * It reads the database with its own connection, verifies the owner's signatures itself, and listens only on
 * CUSTODY_SOCKET. It writes nothing: sealed wallets are returned to the service, which stores them.
 */
import { realpathSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import Fastify, {
  LogController,
  type FastifyError,
  type FastifyInstance,
  type FastifyRequest,
} from "fastify";
import { ConfigError, loadConfig, type Config } from "../../config.ts";
import { ApiError } from "../../errors.ts";
import chains from "../../infra/chain/index.ts";
import db from "../../infra/db/index.ts";
import kms from "../../infra/kms.ts";
import { listenPrivately, MAX_BODY_BYTES } from "../../infra/private-socket.ts";
import { hideConfigured, loggerOptions, metrics } from "../../infra/telemetry.ts";
import { toApiError } from "../http/errors.ts";
import { CustodyError, NotSignedFor } from "./envelope.ts";
import type { KeyVault } from "./key-vault.ts";
import { answerOf, assertCall, decode, encode } from "./vault-calls.ts";
import { vaultHere } from "./wiring.ts";

/** After this much of a stop all connections are closed: Node waits without end for one that sent half a request. */
const STOPPING_MS = 5_000;

export async function startCustody(config: Config): Promise<FastifyInstance> {
  const { custodySocket: path } = config;
  if (path === undefined) throw new ConfigError(["CUSTODY_SOCKET is missing"]);
  const app = Fastify({
    logger: loggerOptions(config),
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: MAX_BODY_BYTES,
    // Calls that arrive while it stops are still answered.
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => {
      app.log.warn({ reason: error.message }, "closed a connection that sent no calls");
      socket.destroy();
    },
  });
  app.decorate("config", config);
  app.addHook("preClose", async () => {
    const limit = setTimeout(() => app.server.closeAllConnections(), STOPPING_MS);
    app.server.once("close", () => clearTimeout(limit));
  });
  try {
    for (const part of [metrics, kms, db, chains]) await app.register(part);
    const vault = vaultHere(app, { trustsCaller: false });
    // Fails at the start, and not at the first payment, if a master key cannot be used.
    await vault.keyNames();
    serveCalls(app, vault);
    await listenPrivately(app, path);
    if (!config.passkeys)
      app.log.warn("PUBLIC_URL is not set, so orders that owners sign with passkeys are refused");
    app.log.info({ path }, "custody is ready for requests");
    return app;
  } catch (error) {
    await app.close().catch(() => undefined);
    throw error;
  }
}

function serveCalls(app: FastifyInstance, vault: KeyVault): void {
  app.addContentTypeParser(
    "application/json",
    { parseAs: "string" },
    async (_request: FastifyRequest, body: string) => decode(body),
  );
  app.post<{ Params: { name: string } }>("/:name", async (request, reply) => {
    const { name } = request.params;
    const { body } = request;
    assertCall(name, body);
    // After a pause of this process the end of a connection is read only after its request: in the same turn, or, since
    // Node 24, in the next one.
    await nextTurn();
    await nextTurn();
    if (request.raw.socket.destroyed) throw new CustodyError("the caller has gone");
    const given = name === "signIn" ? signInArgs(body) : (body as unknown[]);
    const invoke = vault[name].bind(vault) as (...args: unknown[]) => Promise<unknown>;
    return reply.serializer(encode).send({ ok: true, result: (await invoke(...given)) ?? null });
  });
  app.setNotFoundHandler(async () => {
    throw new CustodyError("unknown call");
  });
  app.setErrorHandler((error: FastifyError, { url: call }, reply) => {
    if (error instanceof NotSignedFor)
      app.log.error({ err: error, call }, "a request is not covered by the owner's signature");
    else if (!(error instanceof ApiError)) app.log.error({ err: error, call }, "a call failed");
    // An unreachable database is no internal error, here as in the service.
    const apiError = toApiError(error);
    const isRefusal = !(error instanceof CustodyError) && apiError.status !== 500;
    return reply
      .code(apiError.status)
      .serializer(encode)
      .send(answerOf(isRefusal ? apiError : error));
  });
}

/** The challenge is sent as text. */
function signInArgs(args: unknown): unknown[] {
  const [asked] = args as [{ challenge: string }];
  return [{ ...asked, challenge: JSON.parse(asked.challenge) as unknown }];
}

export async function main(): Promise<void> {
  let hide = (text: string): string => text;
  try {
    const config = loadConfig(process.env, "custody");
    hide = hideConfigured(config);
    const custody = await startCustody(config);
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
      process.once(signal, () => void custody.close().then(() => process.exit(0)));
  } catch (error) {
    const isOurs = error instanceof ConfigError;
    console.error(`Custody could not start: ${hide(isOurs ? error.message : String(error))}`);
    process.exit(1);
  }
}

if (import.meta.url === pathToFileURL(realpathSync(process.argv[1] ?? ".")).href) await main();
