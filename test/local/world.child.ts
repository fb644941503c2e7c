// Starts local mode in the given folder, prints "ready", and waits to be killed.
import { startLocalWorld } from "../../server/local/world.ts";

await startLocalWorld({
  dataDir: process.argv[2] ?? "",
  postgres: true,
  chain: true,
  onProgress: () => undefined,
});
console.log("ready");
