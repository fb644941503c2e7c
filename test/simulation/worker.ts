// spike
import { found } from "./found.ts";
import { Backends } from "./database.ts";
import { keepRows } from "./rows.ts";
import { installTime, real } from "./time.ts";
import { playWorld } from "./play.ts";

const url = process.env["SIM_DATABASE_URL"] ?? "";
installTime();
const backends = await Backends.open(process.env["SIM_SOCKET_URL"] ?? url);
const agents = await found(backends, url);
await keepRows(url);
const first = Number(process.argv[2] ?? 1);
const last = Number(process.argv[3] ?? first + 20);
const begun = real.now();
for (let seed = first; seed <= last; seed += 1) {
  const from = real.now();
  const cpu = process.cpuUsage();
  await backends.monitor.query("SELECT sim.reset()");
  const { world, broken } = await playWorld(seed, backends, agents, url);
  const used = process.cpuUsage(cpu);
  console.log(
    `seed ${seed}: ${broken.length === 0 ? "holds" : "BROKEN"} ${(real.now() - from).toFixed(0)} ms, cpu ${((used.user + used.system) / 1000).toFixed(0)} ms, ${world.timeline.events} events, ${world.database.statements} statements, ${((world.timeline.nowMs - world.timeline.startMs) / 1000).toFixed(0)} s`,
  );
  for (const line of broken) console.log(`   ${line}`);
  if (first === last) {
    for (const line of world.timeline.trace) console.log(line);
    for (const service of [...world.dead]) for (const log of service.logs) if (log.level !== "info" && log.level !== "debug") console.log(service.name, log.level, log.text, log.fields);
  }
}
console.log(`${((real.now() - begun) / (last - first + 1)).toFixed(1)} ms a world`);
await backends.close();
