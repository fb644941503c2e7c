/** At the build: a start as far as it comes with nothing to start on, so that V8 keeps compiled what a start runs. */
import { randomBytes } from "node:crypto";
import { loadConfig } from "./config.ts";
import { migrate } from "./infra/db/migrate.ts";

/** Nobody answers there: it ends at the first thing it must be told, when most of it has run. */
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

/** Anything else is a defect, and ends the build. */
function unlessNobodyAnswered(error: unknown): void {
  if ((error as NodeJS.ErrnoException).syscall !== "connect") throw error;
}
