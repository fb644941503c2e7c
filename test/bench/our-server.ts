// Our server as production runs it: configuration from the environment, default log level.
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";

const config = loadConfig(process.env);
const app = await buildApp(config);
await app.listen({ host: config.host, port: config.port });
process.stderr.write("ready\n");
process.on("SIGTERM", () => void app.close().then(() => process.exit(0)));
