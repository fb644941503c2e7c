// A replica of the engine in a process of its own, which dies by SIGKILL at the fault point it is told.
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

// An orphan would work on.
process.on("disconnect", () => process.exit(0));
const orders = JSON.parse(process.argv[2] ?? "{}") as Orders;
await startEngine(undefined, {
  ...orders,
  fault: async (point) => {
    if (point !== orders.dieAt) return;
    process.kill(process.pid, "SIGKILL");
    // The signal is on its way: nothing may happen in between.
    await new Promise(() => undefined);
  },
});
process.send?.("ready");
