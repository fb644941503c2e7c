import { Group } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { signerOf } from "../../lib/session.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Session } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { resumeEverything } from "./api.ts";
import { useSession } from "../../shared/session/session-context.ts";
import styles from "./Stop.module.css";

type Stopped = NonNullable<Session["stopped"]>;

interface StoppedBannerProps {
  owner: string;
  stopped: Stopped;
  /** It appears after a press on this page, so the focus and the screen move to it. */
  isOwnPress: boolean;
}

/** Above every screen while everything is stopped. */
export function StoppedBanner({ owner, stopped, isOwnPress }: StoppedBannerProps): ReactNode {
  const network = useNetwork();
  const banner = useRef<HTMLElement>(null);
  useEffect(() => {
    if (isOwnPress) banner.current?.focus();
  }, [isOwnPress]);
  const resume = useMutation({
    mutationFn: () => resumeEverything({ owner, stopped, network }),
    onSettled: invalidate.afterStop,
  });
  const { agents, by, at } = stopped;
  const { session } = useSession();
  const isOwn = isSameAddress(by, session ? signerOf(session) : owner);
  const who = isOwn ? "You" : `The account ${shortAddress(by)}`;
  const paused = agents === 1 ? "1 agent is paused" : `${agents} agents are paused`;
  return (
    <section
      ref={banner}
      className={styles.banner}
      aria-label="Everything is stopped"
      tabIndex={-1}
    >
      <Note color="yellow">
        <Group justify="space-between" gap="sm">
          <span className={styles.text}>
            <strong>Everything is stopped.</strong> {who} stopped it on {formatDateTime(at)}.{" "}
            {paused}. Withdrawing works.
          </span>
          <OwnerOnly>
            <MutationButton mutation={resume} pending="Resuming…">
              Resume
            </MutationButton>
          </OwnerOnly>
        </Group>
        {resume.isError && !(resume.error instanceof NotSigned) && (
          <ErrorNotice title="Nothing was resumed" error={resume.error} />
        )}
      </Note>
    </section>
  );
}
