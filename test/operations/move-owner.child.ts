// `npm run move-owner`, to be killed.
import { moveOwner } from "../../server/move-owner/cli.ts";

await moveOwner(process.argv.slice(2), process.env, (line) => console.log(line));
