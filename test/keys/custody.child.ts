// The custody process as started by `npm run custody`, for tests that kill and stop it.
import { main } from "../../server/plugins/custody/process.ts";

await main();
process.send?.("ready");
