import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { QrIcon } from "../../components/icons.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import { QrCode } from "../../components/QrCode.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { atomic } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info/use-info.ts";
import styles from "./AgentSummary.module.css";
import { FundDialog } from "./FundDialog.tsx";

/** Money and limit, side by side: the two things an owner looks for. */
export function AgentSummary({ agent }: { agent: Agent }): ReactNode {
  return (
    <div className={styles.root}>
      <BalanceCard agent={agent} />
      <LimitCard agent={agent} />
    </div>
  );
}

function BalanceCard({ agent }: { agent: Agent }): ReactNode {
  const explorer = useExplorer(agent.network);
  const [open, setOpen] = useState<"fund" | "qr">();
  const isArchived = agent.status === "archived";
  return (
    <Section title="Balance">
      <Stack gap={4}>
        <Money amount={agent.balance} size="display" />
        {agent.balance === null && (
          <Note tone="warn">The chain cannot be read just now. The money is where it was.</Note>
        )}
        <div className={styles.address}>
          <Address value={agent.walletAddress} explorerUrl={explorer} />
          <Button
            variant="icon"
            size="small"
            aria-label="Show the address as a QR code"
            title="QR code"
            onClick={() => {
              setOpen("qr");
            }}
          >
            <QrIcon size={16} />
          </Button>
        </div>
        {!isArchived && agent.balance !== null && atomic(agent.balance) === 0n && (
          <p className={styles.caption}>Empty: it can pay nobody until it is funded.</p>
        )}
        {!isArchived && (
          <Row>
            <Button
              variant="primary"
              onClick={() => {
                setOpen("fund");
              }}
            >
              Fund
            </Button>
          </Row>
        )}
      </Stack>
      <FundDialog
        agent={agent}
        opened={open === "fund"}
        onClose={() => {
          setOpen(undefined);
        }}
      />
      <Dialog
        opened={open === "qr"}
        onClose={() => {
          setOpen(undefined);
        }}
        title={`Address of ${agent.name}`}
        size="sm"
      >
        <Stack gap={3}>
          <QrCode value={agent.walletAddress} label={`QR code of ${agent.walletAddress}`} />
          <Address value={agent.walletAddress} full explorerUrl={explorer} />
        </Stack>
      </Dialog>
    </Section>
  );
}

function LimitCard({ agent }: { agent: Agent }): ReactNode {
  const { limits, allowlist } = agent;
  return (
    <Section title="Limit">
      <Stack gap={4}>
        <div>
          <p className={styles.caption}>Can still spend now</p>
          <Money amount={limits.remaining} size="large" />
        </div>
        <Meter limits={limits} />
        <ul className={styles.facts}>
          <li>
            {limits.nextReleaseAt === null ? (
              atomic(limits.spent) > 0n ? (
                "No release known"
              ) : (
                "Nothing counts against the limit"
              )
            ) : (
              <>
                Next amount is free again <TimeUntil iso={limits.nextReleaseAt} />
              </>
            )}
          </li>
          <li>
            {agent.perPaymentLimit === null ? (
              "No limit per payment"
            ) : (
              <>
                At most <Money amount={agent.perPaymentLimit} /> per payment
              </>
            )}
          </li>
          <li>
            {allowlist.length === 0
              ? "Nobody may be paid yet"
              : `${plural(allowlist.length, "payee")} allowed`}
          </li>
          {agent.expiresAt !== null && (
            <li>
              {agent.expired ? (
                <>
                  Expired <TimeAgo iso={agent.expiresAt} />
                </>
              ) : (
                <>
                  Expires <TimeUntil iso={agent.expiresAt} />
                </>
              )}
            </li>
          )}
        </ul>
      </Stack>
    </Section>
  );
}
