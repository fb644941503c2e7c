// Starts a local world in the folder it is given, says so, and waits to be killed.
import { startLocalWorld } from "../../server/local/world.ts";

await startLocalWorld({
  dataDir: process.argv[2] ?? "",
  postgres: true,
  chain: true,
  onProgress: () => undefined,
});
console.log("ready");
