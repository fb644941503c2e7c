// One replica as in production, with its log in a file. It ends with the soak that started it.
import { createWriteStream } from "node:fs";
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

process.on("disconnect", () => process.exit(0));
const config = loadConfig(process.env);
const log = createWriteStream(process.env["SOAK_LOG"] ?? "/dev/null", { flags: "a" });
const app = await buildApp(config, { logDestination: log });
await app.listen({ host: config.host, port: config.port });
process.send?.("ready");
process.on("SIGTERM", () => {
  app.close().then(
    () => process.exit(0),
    () => process.exit(1),
  );
});
