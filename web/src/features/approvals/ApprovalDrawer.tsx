import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Badge } from "../../components/Badge.tsx";
import { Button, LinkButton } from "../../components/Button.tsx";
import { Drawer } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Approval } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info.ts";
import { approvalQuery, approve, decline } from "./api.ts";
import styles from "./Approvals.module.css";
import { STATUS } from "./words.ts";

interface ApprovalDrawerProps {
  approvalId: string | null;
  /** The list's entry for it. */
  known: Approval | undefined;
  onClose: () => void;
}

/** Opening it does not decide the request: only the two buttons do. */
export function ApprovalDrawer({ approvalId, known, onClose }: ApprovalDrawerProps): ReactNode {
  const query = useQuery({
    ...approvalQuery(approvalId ?? ""),
    enabled: approvalId !== null,
  });
  const approval = query.data ?? known;
  return (
    <Drawer opened={approvalId !== null} onClose={onClose} title="Approval">
      {approval ? (
        <ApprovalDetails approval={approval} />
      ) : (
        <QueryStatus query={query} what="the approval" failed="The approval could not be loaded">
          <Skeleton shape="title" />
          <Skeleton count={8} />
        </QueryStatus>
      )}
    </Drawer>
  );
}

function ApprovalDetails({ approval }: { approval: Approval }): ReactNode {
  const status = STATUS[approval.status];
  return (
    <Stack gap={5}>
      <Stack gap={2}>
        <Money amount={approval.amount} size="display" />
        <p>
          <strong>{approval.agentName}</strong> requests permission for this one payment
          {approval.site !== null && ` at ${approval.site}`}.
        </p>
        <Row>
          <Badge tone={status.tone}>{status.label}</Badge>
          <Muted>
            requested <TimeAgo iso={approval.createdAt} />
          </Muted>
        </Row>
        <Muted>{status.meaning}</Muted>
      </Stack>
      <Note tone="warn">
        <strong>Why it was refused</strong>
        <p>{approval.denial.detail}</p>
      </Note>
      {approval.reason !== null && (
        <Stack gap={2}>
          <h3>Reason from the agent</h3>
          <blockquote className={styles.words}>{approval.reason}</blockquote>
          <Muted>This text may come from a third party. Check the payee and the amount.</Muted>
        </Stack>
      )}
      <Decide approval={approval} />
      <Facts approval={approval} />
    </Stack>
  );
}

function Decide({ approval }: { approval: Approval }): ReactNode {
  const options = { onSettled: invalidate.afterApproval };
  const allow = useMutation({ mutationFn: () => approve(approval), ...options });
  const refuse = useMutation({ mutationFn: () => decline(approval.id), ...options });
  const failure = [allow.error, refuse.error].find(
    (error) => error !== null && !(error instanceof NotSigned),
  );
  const isOpen = approval.status === "open";
  if (!isOpen && approval.status !== "granted") return null;
  return (
    <Stack gap={3}>
      {isOpen && (
        <Muted>
          To allow it, sign once for exactly this payee and amount. Your rules do not change.
        </Muted>
      )}
      {failure && <ErrorNotice title="The decision was not saved" error={failure} />}
      <Row>
        {isOpen && (
          <Button
            variant="primary"
            disabled={refuse.isPending}
            pending={allow.isPending && "Waiting for your wallet…"}
            onClick={() => {
              refuse.reset();
              allow.mutate();
            }}
          >
            Allow once
          </Button>
        )}
        <Button
          variant={isOpen ? "secondary" : "danger"}
          disabled={allow.isPending}
          pending={refuse.isPending && "Declining…"}
          onClick={() => {
            allow.reset();
            refuse.mutate();
          }}
        >
          {isOpen ? "Decline" : "Revoke"}
        </Button>
      </Row>
    </Stack>
  );
}

function Facts({ approval }: { approval: Approval }): ReactNode {
  const network = useNetwork(approval.network);
  const explorer = useExplorer(approval.network);
  const { policy, rule } = approval.denial;
  const isLive = approval.status === "open" || approval.status === "granted";
  return (
    <Stack gap={4}>
      <KeyValues
        rows={[
          ["To", <Address key="to" value={approval.payee} full explorerUrl={explorer} />],
          approval.site !== null && ["Site", <code key="site">{approval.site}</code>],
          approval.url !== null && ["URL", <code key="url">{approval.url}</code>],
          ["Network", network?.name ?? approval.network],
          approval.memo !== null && approval.memo !== "" && ["Memo", approval.memo],
          /limit|per_hour/.test(rule) && [
            "Limit",
            `${policy.limit ?? ""}, ${policy.spent ?? "0"} used (${policy.window ?? ""})`,
          ],
          isLive && ["Ends", <TimeUntil key="ends" iso={approval.expiresAt} />],
          ["Requested", formatDateTime(approval.createdAt)],
          approval.decidedAt !== null && ["Decided", formatDateTime(approval.decidedAt)],
        ]}
      />
      <Row>
        {approval.paymentId !== null && (
          <LinkButton to={`/agents/${approval.agentId}?payment=${approval.paymentId}`}>
            View payment{" "}
          </LinkButton>
        )}
        <LinkButton to={`/agents/${approval.agentId}/rules`} variant="ghost">
          View the agent&apos;s rules{" "}
        </LinkButton>
      </Row>
    </Stack>
  );
}
