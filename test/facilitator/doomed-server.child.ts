// The service in its own process, which kills itself at the given point.
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

const doomAt = process.env["DOOM_AT"];
const config = loadConfig(process.env);
const app = await buildApp(config);
const at = async (point: string): Promise<void> => {
  if (point === doomAt) {
    process.kill(process.pid, "SIGKILL");
    // The signal takes a moment, in which nothing may happen.
    await new Promise(() => undefined);
  }
};
app.paymentFaults.at = at;
app.x402Faults.at = at;
app.allowanceFaults.at = at;
await app.listen({ host: config.host, port: config.port });
process.stdout.write("ready\n");
