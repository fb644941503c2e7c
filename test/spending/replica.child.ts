// One replica of the service in its own process, so that a test can skew its clock, freeze it or kill it.
import { AsyncLocalStorage } from "node:async_hooks";
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

const config = loadConfig(process.env);
/** The step at which the current request is held forever, from its header: see `killedMidway`. */
const holdAt = new AsyncLocalStorage<string>();
const app = await buildApp(config, {
  logDestination: { write: () => undefined },
  observe: (app) =>
    void app.addHook("preHandler", (request, _reply, done) => {
      const point = request.headers["x-test-hold-at"];
      if (typeof point === "string") holdAt.run(point, done);
      else done();
    }),
});
const hold = async (point: string): Promise<void> => {
  process.send?.(point);
  await new Promise(() => undefined);
};
const at = async (point: string): Promise<void> => {
  if (point === holdAt.getStore()) await hold(point);
};
app.paymentFaults.at = at;
app.x402Faults.at = at;
app.allowanceFaults.at = at;
app.refundFaults.at = at;
// The settlement engine runs outside of requests: it is held for all of them.
app.settlementFaults.at = async (point) => {
  if (point === process.env["PURSER_TEST_HOLD_ENGINE_AT"]) await hold(point);
};
await app.listen({ host: config.host, port: config.port });
process.send?.("ready");
process.on("SIGTERM", () => {
  app.close().then(
    () => process.exit(0),
    () => process.exit(1),
  );
});
