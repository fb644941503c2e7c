/**
 * `npm run custody`: the separate process that has the master keys and signs for agents' wallets (docs/decisions/0030).
 * It reads the database with its own connection, verifies the owner's signatures itself, and listens only on
 * CUSTODY_SOCKET. It writes nothing: sealed wallets are returned to the service, which stores them.
 */
import { realpathSync } from "node:fs";
import { pathToFileURL } from "node:url";
import Fastify, { type FastifyError, type FastifyInstance } from "fastify";
import { ConfigError, loadConfig, type Config } from "../../config.ts";
import { ApiError } from "../../errors.ts";
import chains from "../../infra/chain/index.ts";
import db from "../../infra/db/index.ts";
import kms, { keysUnavailable } from "../../infra/kms.ts";
import { hideConfigured, loggerOptions, metrics } from "../../infra/telemetry.ts";
import type { Call } from "../../infra/unix-frames.ts";
import { serveCalls } from "../../infra/unix-serve.ts";
import { toApiError } from "../http/errors.ts";
import { CustodyError, NotSignedFor } from "./envelope.ts";
import type { KeyVault } from "./key-vault.ts";
import { answerOf, assertCall, type Answer } from "./vault-calls.ts";
import { vaultHere } from "./wiring.ts";

/** How many calls run at once, as many as the database can run, and how many of a burst wait. */
const AT_ONCE = 128;
const WAITING = 1_024;

export interface CustodyProcess {
  close(): Promise<void>;
}

export async function startCustody(config: Config): Promise<CustodyProcess> {
  const { custodySocket: path } = config;
  if (path === undefined) throw new ConfigError(["CUSTODY_SOCKET is missing"]);
  const app = Fastify({ logger: loggerOptions(config) });
  app.decorate("config", config);
  try {
    for (const part of [metrics, kms, db, chains]) await app.register(part);
    await app.ready();
    const vault = vaultHere(app, { trustsCaller: false });
    // Fails at the start, and not at the first payment, if a master key cannot be used.
    await vault.keyNames();
    const served = await serveCalls({
      path,
      answer: (call) => answer(app, vault, call),
      tooBusy: answerOf(keysUnavailable(new Error("too many calls at the same time"))),
      atOnce: AT_ONCE,
      waiting: WAITING,
      onBroken: (reason) => app.log.warn({ reason }, "closed a connection that sent no calls"),
    });
    app.log.info({ path }, "custody is ready for requests");
    return {
      close: async () => {
        await served.close();
        await app.close();
      },
    };
  } catch (error) {
    await app.close().catch(() => undefined);
    throw error;
  }
}

async function answer(app: FastifyInstance, vault: KeyVault, call: Call): Promise<Answer> {
  const { method, args } = call;
  try {
    assertCall(method, args);
    const given = method === "signIn" ? signInArgs(args) : (args as unknown[]);
    const invoke = vault[method].bind(vault) as (...args: unknown[]) => Promise<unknown>;
    return { ok: true, result: (await invoke(...given)) ?? null };
  } catch (error) {
    if (error instanceof NotSignedFor)
      app.log.error({ err: error, method }, "a request is not covered by the owner's signature");
    else if (!(error instanceof ApiError)) app.log.error({ err: error, method }, "a call failed");
    if (error instanceof CustodyError) return answerOf(error);
    // An unreachable database is no internal error, here as in the service.
    const apiError = toApiError(error as FastifyError);
    return answerOf(apiError.status === 500 ? error : apiError);
  }
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
