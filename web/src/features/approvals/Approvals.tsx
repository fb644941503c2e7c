import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import rows from "../../components/Rows.module.css";
import { shortAddress } from "../../lib/address.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Approval } from "../../lib/wire.ts";
import { approvalsQuery } from "./api.ts";
import { ApprovalDrawer } from "./ApprovalDrawer.tsx";
import styles from "./Approvals.module.css";
import { STATUS } from "./words.ts";

export function Approvals(): ReactNode {
  const query = useInfiniteQuery(approvalsQuery);
  const [openId, setOpenId] = useParameter("approval");
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <Section
        flush
        title="Requests from your agents"
        hint="Payments that your rules refused and an agent asks you to allow once. Your rules do not change."
      >
        <QueryStatus query={query} what="approvals" failed="The approvals could not be loaded">
          <Skeleton shape="row" count={4} />
        </QueryStatus>
        {query.isSuccess && items.length === 0 && (
          <EmptyState title="No open requests">
            When a rule refuses a payment, the agent can ask you to allow it once. The request
            appears here.
          </EmptyState>
        )}
        <ul className={styles.list}>
          {items.map((approval) => (
            <Row
              key={approval.id}
              approval={approval}
              onOpen={() => {
                setOpenId(approval.id);
              }}
            />
          ))}
        </ul>
        <LoadMore query={query} what="approvals" />
      </Section>
      <ApprovalDrawer
        approvalId={openId === "" ? null : openId}
        known={items.find(({ id }) => id === openId)}
        onClose={() => {
          setOpenId("");
        }}
      />
    </>
  );
}

function Row({ approval, onOpen }: { approval: Approval; onOpen: () => void }): ReactNode {
  const status = STATUS[approval.status];
  return (
    <li className={styles.row}>
      <div className={rows.what}>
        <button type="button" className={rows.open} onClick={onOpen} aria-haspopup="dialog">
          {approval.agentName}
        </button>
        <span className={rows.meta}>
          to {approval.site ?? shortAddress(approval.payee)}
          {approval.reason !== null && ` · “${approval.reason}”`}
        </span>
      </div>
      <Badge tone={status.tone}>{status.label}</Badge>
      <span className={`${rows.meta} ${styles.time}`}>
        <TimeAgo iso={approval.createdAt} />
      </span>
      <span className={styles.amount}>
        <Money amount={approval.amount} />
      </span>
    </li>
  );
}
