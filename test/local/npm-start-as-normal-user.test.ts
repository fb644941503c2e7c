// Goal: `npm start` on a clone works for a user without privileges, explains failures in one line, and leaves no
// process running.
// Tier: full (starts a fresh clone once more).
import t from "tap";
import { freshCopy } from "../helpers/fresh-copy.ts";
import { firstStart, kills, stopWhileBuilding } from "./whole-life.ts";

const NOBODY = { uid: 65534, gid: 65534 };

t.test("as a normal user", async (t) => {
  const user = process.getuid?.() === 0 ? NOBODY : undefined;
  const copy = freshCopy(t, 0o755, user);
  await stopWhileBuilding(t, copy);
  await kills(t, await firstStart(t, copy), "SIGTERM to npm alone");
});
