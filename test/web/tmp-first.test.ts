// Goal: temporary
import t from "tap";
import { firstRun } from "./first-run.ts";
import { webWorld } from "./world.ts";
t.test("first", async (t) => firstRun(t, await webWorld(t)));
