// A real SMTP server for tests: accepts and parses mails, or misbehaves in a way that such servers have.
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { once } from "node:events";
import { simpleParser, type ParsedMail } from "mailparser";
import { SMTPServer, type SMTPServerOptions } from "smtp-server";
import type { Test } from "tap";

export interface Mailbox {
  url: string;
  port: number;
  /** Accepted mails, in order. */
  mails: ParsedMail[];
  /** The raw text of each mail. */
  raw: string[];
  /** The response for the next recipients; undefined accepts them. */
  refuseRecipient: { code: number; text: string } | undefined;
  /** The response after the last line of a mail; undefined accepts it. */
  refuseData: { code: number; text: string } | undefined;
  /** Runs between the last line and the response. */
  beforeAnswer: () => Promise<void>;
  close(): Promise<void>;
}

export const MAIL_FROM = "Purser Test <purser@mail.example>";

const fail = ({ code, text }: { code: number; text: string }): Error =>
  Object.assign(new Error(text), { responseCode: code });

export async function mailbox(
  t: Pick<Test, "teardown">,
  options: SMTPServerOptions & { port?: number } = {},
): Promise<Mailbox> {
  const { port: wanted = 0, ...others } = options;
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ["STARTTLS"],
    // The reverse lookup of client names needs a DNS resolver.
    disableReverseLookup: true,
    onRcptTo: (_address, _session, done) => done(box.refuseRecipient && fail(box.refuseRecipient)),
    onData: (stream, _session, done) => {
      const parts: Buffer[] = [];
      stream.on("data", (part: Buffer) => parts.push(part));
      stream.on("end", () => {
        const bytes = Buffer.concat(parts);
        void (async () => {
          if (box.refuseData) return done(fail(box.refuseData));
          box.raw.push(bytes.toString("utf8"));
          box.mails.push(await simpleParser(bytes));
          await box.beforeAnswer();
          return done();
        })();
      });
    },
    ...others,
  });
  server.on("error", () => undefined);
  await new Promise<void>((resolve) => server.listen(wanted, "127.0.0.1", resolve));
  const { port } = server.server.address() as AddressInfo;
  const close = (): Promise<void> => new Promise((resolve) => server.close(() => resolve()));
  t.teardown(close);
  const box: Mailbox = {
    url: `smtp://127.0.0.1:${port}`,
    port,
    mails: [],
    raw: [],
    refuseRecipient: undefined,
    refuseData: undefined,
    beforeAnswer: async () => {},
    close,
  };
  return box;
}

/** Misbehaving servers without a library: silent, dribbling, closing, refusing, or gone after the mail's last line. */
export async function brokenServer(
  t: Pick<Test, "teardown">,
  how: "silent" | "dribbling" | "gone-after-data" | "closed-at-once" | "greets-with-554",
): Promise<{ url: string; taken: () => number }> {
  const sockets = new Set<Socket>();
  let taken = 0;
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    if (how === "closed-at-once") return void socket.destroy();
    if (how === "greets-with-554") return void socket.end("554 go away\r\n");
    if (how === "dribbling") {
      const timer = setInterval(() => socket.write("220-wait\r\n"), 50);
      return void socket.on("close", () => clearInterval(timer));
    }
    if (how === "gone-after-data") speak(socket, () => (taken += 1));
    return undefined;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  });
  return {
    url: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`,
    taken: () => taken,
  };
}

function speak(socket: Socket, onTaken: () => void): void {
  let isData = false;
  let seen = "";
  socket.write("220 ready\r\n");
  socket.on("data", (bytes: Buffer) => {
    seen += bytes.toString("latin1");
    if (isData) {
      if (!seen.includes("\r\n.\r\n")) return;
      onTaken();
      socket.destroy();
      return;
    }
    for (let end = seen.indexOf("\r\n"); end !== -1; end = seen.indexOf("\r\n")) {
      const line = seen.slice(0, end);
      seen = seen.slice(end + 2);
      isData = /^DATA/i.test(line);
      socket.write(isData ? "354 go on\r\n" : "250 fine\r\n");
    }
  });
}
