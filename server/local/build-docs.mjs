// Builds the documentation after `npm start`, at the lowest priority. Nothing depends on it.
import { constants, setPriority } from "node:os";
import { ensureDocsBuild, prepare } from "./bootstrap.mjs";

setPriority(constants.priority.PRIORITY_LOW);
await prepare(() => undefined, [ensureDocsBuild]);
