// The service in a process of its own, which kills itself at the named point.
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

const doomAt = process.env["DOOM_AT"];
const config = loadConfig(process.env);
const app = await buildApp(config);
const at = async (point: string): Promise<void> => {
  if (point === doomAt) {
    process.kill(process.pid, "SIGKILL");
    // The signal takes a moment; nothing may happen in it.
    await new Promise(() => undefined);
  }
};
app.paymentFaults.at = at;
app.x402Faults.at = at;
app.allowanceFaults.at = at;
await app.listen({ host: config.host, port: config.port });
process.stdout.write("ready\n");
