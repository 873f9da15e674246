-- Actions of attempts are named by `payment::Action`, and one that a job cannot have is refused when it is read. The previous
-- release writes only 'pay' and 'cancel'.
ALTER TABLE attempts
    DROP CONSTRAINT attempts_kind_known,
    ADD CONSTRAINT attempts_kind_is_a_name CHECK (kind ~ '^[a-z][a-z_]{0,31}$');
