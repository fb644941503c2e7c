// Goal: a timer, a connection, a server, a child process or a page that a test file leaves open is reported by name, and nothing else is.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import t from "tap";
import { shareWithProcess } from "../helpers/shared.ts";
import { leftBehind } from "../runner/left-behind.mjs";

t.test("nothing", async (t) => t.same(await leftBehind(), []));

t.test("a timer", async (t) => {
  const timer = setTimeout(() => undefined, 60_000);
  t.same(await leftBehind(0), ["Timeout"]);
  timer.unref();
  t.same(await leftBehind(0), [], "an unref'd timer does not count");
  clearTimeout(timer);
});

t.test("a server and a connection", async (t) => {
  const server = createServer((socket) => socket.resume()).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  t.same(await leftBehind(0), [`Server on port ${port}`]);
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  t.ok((await leftBehind(0)).includes(`Socket to 127.0.0.1:${port}`));
  socket.destroy();
  server.close();
  t.same(await leftBehind(), []);
});

t.test("a child", async (t) => {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1e6)"], { stdio: "ignore" });
  const [left = ""] = await leftBehind(0);
  t.ok(left.startsWith(`ChildProcess ${child.pid}: `), left);
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
  t.same(await leftBehind(), []);
});

t.test("shared resources are ignored, pages left open in them are reported", async (t) => {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1e6)"], {
    stdio: "ignore",
  });
  const pages: string[] = [];
  const unshare = shareWithProcess({ handles: [child], left: () => pages });
  t.same(await leftBehind(0), []);
  pages.push("a page at http://localhost/");
  t.same(await leftBehind(0), pages);
  unshare();
  t.match(await leftBehind(0), [/^ChildProcess /]);
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
});
