/**
 * Watches the database's SQL functions while this process runs. A build that knows no function versions, or a restored
 * backup, may put older ones in place: then payments are refused before anything is signed, and this build's functions
 * are installed again.
 */
import fp from "fastify-plugin";
import { ApiError } from "../errors.ts";
import { type InstalledFunctions, readFunctions, readInstalled } from "./db/functions.ts";
import { reinstallFunctions } from "./db/migrate.ts";
import { NotReady } from "./readiness.ts";

declare module "fastify" {
  interface FastifyInstance {
    functions: FunctionsWatch;
  }
}

const CHECK_EVERY_MS = 1_000;
/** Keeps two builds that replace each other's functions from doing so all the time. */
const REINSTALL_PAUSE_MS = 60_000;

interface FunctionsWatchDeps {
  read(): Promise<InstalledFunctions>;
  reinstall(): Promise<string[]>;
  nowMs(): number;
  onReinstalled(names: string[]): void;
}

export class FunctionsWatch {
  readonly #deps: FunctionsWatchDeps;
  #installed: InstalledFunctions = "own";
  #reinstallAfterMs = -Infinity;

  constructor(deps: FunctionsWatchDeps) {
    this.#deps = deps;
  }

  /** Throws while the installed functions are older than this build. */
  assertInstalled(): void {
    if (this.#installed === "older")
      throw new ApiError("service_unavailable", {
        detail: "The database's functions are older than this process. Nothing was signed.",
        headers: { "retry-after": "2" },
      });
  }

  async check(): Promise<InstalledFunctions> {
    this.#installed = await this.#deps.read();
    return this.#installed;
  }

  async repair(): Promise<void> {
    if ((await this.check()) !== "older" || this.#deps.nowMs() < this.#reinstallAfterMs) return;
    this.#reinstallAfterMs = this.#deps.nowMs() + REINSTALL_PAUSE_MS;
    const names = await this.#deps.reinstall();
    // Empty if another process was first.
    if (names.length > 0) this.#deps.onReinstalled(names);
    await this.check();
  }
}

export default fp(
  async (app) => {
    const own = await readFunctions();
    const watch = new FunctionsWatch({
      read: () => readInstalled(app.pool, own),
      reinstall: () => reinstallFunctions(app.config.databaseUrl ?? ""),
      nowMs: () => performance.now(),
      onReinstalled: (names) =>
        app.log.warn(
          { functions: names },
          "a different build installed older functions in the database; installed this build's functions again",
        ),
    });
    app.decorate("functions", watch);
    app.readiness.add("functions", async () => {
      const installed = await watch.check();
      if (installed === "older") throw new NotReady("older than this build");
      return installed === "own" ? `version ${own.version}` : "of a newer build";
    });
    let timer: NodeJS.Timeout | undefined;
    let isClosing = false;
    const next = (): void => {
      if (isClosing) return;
      timer = setTimeout(() => void round(), CHECK_EVERY_MS).unref();
    };
    const round = async (): Promise<void> => {
      await watch
        .repair()
        .catch((err: unknown) =>
          app.log.warn({ err }, "the database's functions were not checked"),
        );
      next();
    };
    app.addHook("onReady", async () => next());
    app.addHook("preClose", async () => {
      isClosing = true;
      clearTimeout(timer);
    });
  },
  { name: "functions", dependencies: ["db", "readiness"] },
);
