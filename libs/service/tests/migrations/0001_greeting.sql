CREATE TABLE greeting (text TEXT NOT NULL);
