/**
 * Part of the build: runs a start as far as possible without services, so that V8's code cache contains what a start
 * runs.
 */
import { randomBytes } from "node:crypto";
import { loadConfig } from "./config.ts";
import { migrate } from "./infra/db/migrate.ts";

/** Nothing listens there: the start ends at its first connection, when most of the code has run. */
const NOWHERE = "127.0.0.1:9";

export async function rehearse(): Promise<void> {
  const config = loadConfig({
    PURSER_MODE: "production",
    PUBLIC_URL: "http://localhost:9",
    DATABASE_URL: `postgres://nobody:nothing@${NOWHERE}/none`,
    NETWORKS: "eip155:5042002",
    RPC_URL_5042002: `http://${NOWHERE}`,
    RELAYER_PRIVATE_KEYS: `0x${randomBytes(32).toString("hex")}`,
    MASTER_KEYS: `none:${randomBytes(32).toString("base64")}`,
    FACILITATOR_OPEN: "true",
  });
  const { databaseUrl: connectionString = "" } = config;
  await migrate({ connectionString }).catch(unlessNobodyAnswered);
  const { buildApp } = await import("./app.ts");
  const logDestination = { write: () => undefined };
  await buildApp(config, { logDestination }).catch(unlessNobodyAnswered);
}

/** Any other error is a defect, and fails the build. */
function unlessNobodyAnswered(error: unknown): void {
  if ((error as NodeJS.ErrnoException).syscall !== "connect") throw error;
}
