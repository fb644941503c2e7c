// A replica of the engine in its own process, which kills itself with SIGKILL at the given fault point.
import { startEngine, type TestEngineOptions } from "./engine.ts";

interface Orders extends Pick<
  TestEngineOptions,
  | "databaseUrl"
  | "chain"
  | "blockTimeMs"
  | "relayerPrivateKeys"
  | "confirmations"
  | "inclusionDepth"
> {
  dieAt?: string;
}

// Otherwise an orphan would continue to run.
process.on("disconnect", () => process.exit(0));
const orders = JSON.parse(process.argv[2] ?? "{}") as Orders;
await startEngine(undefined, {
  ...orders,
  fault: async (point) => {
    if (point !== orders.dieAt) return;
    process.kill(process.pid, "SIGKILL");
    // SIGKILL takes effect asynchronously: do nothing until then.
    await new Promise(() => undefined);
  },
});
process.send?.("ready");
