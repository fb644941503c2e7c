// The custody process as `npm run custody` starts it: what a test kills and stops.
import { main } from "../../server/plugins/custody/process.ts";

await main();
process.send?.("ready");
