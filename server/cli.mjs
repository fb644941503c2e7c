#!/usr/bin/env node
// The command line for agents: registers the TypeScript loader, then runs client/cli.ts.
import { register } from "tsx/esm/api";

register();
const { main } = await import("./client/cli.ts");
process.exitCode = await main(process.argv.slice(2), process.env, (line) => console.log(line));
