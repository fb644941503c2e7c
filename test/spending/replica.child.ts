// One replica of the service in a process of its own, so that it can be skewed, frozen and killed.
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

const config = loadConfig(process.env);
const app = await buildApp(config, { logDestination: { write: () => undefined } });
const fault = process.env["PURSER_TEST_FAULT"];
if (fault !== undefined) {
  const die = async (point: string): Promise<void> => {
    if (point === fault) process.kill(process.pid, "SIGKILL");
    await Promise.resolve();
  };
  app.paymentFaults.at = die;
  app.refundFaults.at = die;
}
await app.listen({ host: config.host, port: config.port });
process.send?.("ready");
process.on("SIGTERM", () => {
  app.close().then(
    () => process.exit(0),
    () => process.exit(1),
  );
});
