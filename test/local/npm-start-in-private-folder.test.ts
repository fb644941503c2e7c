// Goal: `npm start` works in a folder that only this user may enter, explains failures in one line, and leaves no
// process running; root is the hard case, as Postgres refuses to run as root.
import t from "tap";
import { freshCopy } from "../helpers/fresh-copy.ts";
import { firstPayment, firstStart, kills, refusals } from "./whole-life.ts";

t.test("in a folder that only this user may enter", async (t) => {
  const life = await firstStart(t, freshCopy(t, 0o700));
  await firstPayment(t, life);
  await refusals(t, life);
  await kills(t, life, "Ctrl-C");
});
