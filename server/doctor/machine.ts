/** The doctor's checks of this machine and of the public address, before anything of ours runs. */
import { existsSync } from "node:fs";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import type { Config } from "../config.ts";
import { nodeAdvice } from "../core/node-version.ts";
import { ROOT } from "../infra/root.ts";
import { assertPortFree } from "../local/free-port.ts";
import { StartError } from "../local/start-error.ts";
import { durationOf, ok, warning, wrong, type Finding } from "./finding.ts";

const CONNECT_MS = 10_000;
/** Certificates that renew by themselves do so a month before. */
const CERTIFICATE_DAYS = 14;
const DAY_MS = 86_400_000;

export function checkNode(version: string = process.versions.node): Finding {
  const advice = nodeAdvice(version);
  return advice === undefined
    ? ok("node", `Node ${version}`)
    : warning("node", advice, "Payments work. Change Node when you next restart the service.");
}

/** The web app is served from this folder. */
export function checkWebBuild(root: URL = ROOT): Finding {
  return existsSync(new URL("web/dist/index.html", root))
    ? ok("web app", "is built")
    : warning(
        "web app",
        "is not built, so `npm start -- --built` would serve no pages",
        "`npm start` builds it. Or run npm run build --workspace web.",
      );
}

export async function checkPort({ host, port }: Pick<Config, "host" | "port">): Promise<Finding> {
  try {
    await assertPortFree(host, port);
    return ok("port", `${host}:${port} is free`);
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    return wrong(
      "port",
      error.message,
      "Change HOST or PORT, or stop the other program. A running service of this configuration is no fault.",
    );
  }
}

/** Does the name lead somewhere, and is the certificate there one that clients accept? */
export async function checkAddress({ publicUrl }: Pick<Config, "publicUrl">): Promise<Finding[]> {
  const check = `PUBLIC_URL ${publicUrl}`;
  const { protocol, hostname, port } = new URL(publicUrl);
  const host = hostname.replace(/^\[|\]$/g, "");
  try {
    if (isIP(host) === 0) await lookup(host);
  } catch (error) {
    const { code = "no answer" } = error as NodeJS.ErrnoException;
    return [
      wrong(
        check,
        `the name ${host} is not found (${code})`,
        "Add it to your DNS. It may not be known inside a network.",
        "public_url_not_found",
      ),
    ];
  }
  // Only a loopback address may be http in production.
  if (protocol === "http:") return [ok(check, "is on this machine only, without TLS")];
  return [await checkCertificate(check, host, Number(port || 443))];
}

async function checkCertificate(check: string, host: string, port: number): Promise<Finding> {
  let socket: TLSSocket;
  try {
    socket = await connectTls(host, port);
  } catch (error) {
    const { code = "no TLS" } = error as NodeJS.ErrnoException;
    return warning(
      check,
      `no TLS connection to ${host}:${port} (${code})`,
      "Start the proxy that has the certificate. It may not be reachable from inside a network.",
      "public_url_unreachable",
    );
  }
  const { authorizationError } = socket;
  const until = Date.parse(socket.getPeerCertificate().valid_to);
  socket.destroy();
  // Of type Error, but Node sets the code.
  const reason = authorizationError as Error | string | undefined;
  if (reason)
    return wrong(
      check,
      `clients would refuse its certificate (${typeof reason === "string" ? reason : reason.message})`,
      "Give the proxy a certificate of a public authority for this name, with its chain.",
      "public_url_certificate",
    );
  const lasts = durationOf((until - Date.now()) / 1_000);
  return until - Date.now() < CERTIFICATE_DAYS * DAY_MS
    ? warning(
        check,
        `its certificate ends in ${lasts}`,
        "Renew it, and let it renew by itself.",
        "public_url_certificate",
      )
    : ok(check, `its certificate is valid for ${lasts}`);
}

/** Also with a certificate that is not valid, so that the reason can be read. */
function connectTls(host: string, port: number): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const servername = isIP(host) === 0 ? { servername: host } : {};
    const socket = connect({ host, port, rejectUnauthorized: false, ...servername });
    socket.setTimeout(CONNECT_MS, () =>
      socket.destroy(Object.assign(new Error("no answer in time"), { code: "ETIMEDOUT" })),
    );
    socket.once("secureConnect", () => resolve(socket));
    socket.once("error", reject);
  });
}
